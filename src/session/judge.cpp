#include "session/judge.hpp"

#include "frozen/image.hpp"
#include "session/initial_files.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr unsigned kMostAttempts = 3;

// The longer, the more often it failed: what is short at the moment may be there again.
std::chrono::milliseconds pause_after(unsigned attempts) { return 250ms * (attempts * attempts); }

Judgement told(Verdict verdict, std::string reason) {
  Judgement judgement;
  judgement.verdict = verdict;
  judgement.reason = std::move(reason);
  return judgement;
}

Judgement of_build(const Built& built) {
  if (built.missing) return told(Verdict::refused, built.reason);
  Judgement judgement =
      told(Verdict::compile_error, built.reason.empty() ? "it does not compile" : built.reason);
  judgement.err = built.complaint;
  return judgement;
}

// A program that ends the same way by itself is run twice, and nobody notices.
bool is_bad_image(const RunResult& ran) {
  return ran.status.reason == EndReason::exited && ran.status.exit_code == frozen::kExitBadImage &&
         ran.out.empty() && ran.err.empty();
}

// A part of a program lives in the item that has it.
std::shared_ptr<const Program> part(const std::shared_ptr<const BatchItem>& item,
                                    const Program& program) {
  return {item, &program};
}

}  // namespace

asio::awaitable<Judgement> Judge::judge(std::string owner, std::shared_ptr<const BatchItem> item,
                                        std::shared_ptr<CallOff> call_off) {
  for (unsigned attempts = 1;; ++attempts) {
    auto trying = attempt(owner, item, call_off);
    auto result = co_await std::move(trying);
    Judgement judgement =
        result ? std::move(*result) : told(Verdict::platform, result.error().what);
    judgement.attempts = attempts;
    bool ours = judgement.verdict == Verdict::platform;
    if (!ours || attempts == kMostAttempts || call_off->is_called()) co_return judgement;
    ++retries_;
    auto pausing = call_off->pause(pause_after(attempts));
    co_await std::move(pausing);
  }
}

asio::awaitable<Result<Judge::Ran>> Judge::run(Run run) {
  const ProgramLanguage& language = *run.program->language;
  std::vector<InitialFile> files = run.program->files;
  files.insert(files.end(), run.files.begin(), run.files.end());
  // Last, so that nothing can take its place.
  if (run.program->is_built()) {
    auto building = builder_.build(run.owner, run.program, run.call_off);
    BuiltPtr built = CO_TRY(co_await std::move(building));
    if (!built->ok) co_return Ran{{}, of_build(*built)};
    if (built->executable.size() > run.limits.disk_bytes / 4 * 3)
      co_return Ran{{}, told(Verdict::refused, "the program does not fit into its disk")};
    files.push_back({place_of_executable(), built->executable, 0755});
  } else {
    files.push_back({place_of_code(language), run.program->code, 0644});
  }

  auto creating = provider_.create(judging_spec(run.limits));
  auto sandbox = CO_TRY(co_await std::move(creating));
  if (run.call_off->is_called()) co_return fail(Errc::gone, "it was called off");
  CallOff::During during(run.call_off.get(), ends(executor_, sandbox));
  auto putting = put_files(sandbox, std::move(files));
  if (auto put = co_await std::move(putting); !put) {
    if (!is_callers(put.error())) co_return fail(put.error());
    co_return Ran{{}, told(Verdict::refused, put.error().what)};
  }
  Command command = program_command(language, run.limits);
  if (language.name == "python" && !run.from_file)
    command.frozen = interpreters_->image_for(sandbox->spec().environment);
  bool thawed = command.frozen != nullptr;
  auto running = sandbox->run(std::move(command), run.input);
  RunResult ran = CO_TRY(co_await std::move(running));
  if (thawed && is_bad_image(ran)) {
    run.from_file = true;
    auto again = this->run(std::move(run));
    co_return co_await std::move(again);
  }
  if (ran.status.reason == EndReason::not_started && verdict_of(ran.status) == Verdict::refused &&
      !run.program->is_built())
    co_return Ran{{}, told(Verdict::refused, "this machine has no " + std::string(language.needs))};
  // Dropped here, the sandbox ends in the background; making others waits for too many of these.
  co_return Ran{std::move(ran), std::nullopt};
}

asio::awaitable<Result<Judgement>> Judge::attempt(std::string owner,
                                                  std::shared_ptr<const BatchItem> item,
                                                  std::shared_ptr<CallOff> call_off) {
  Run own{owner, part(item, item->program), {}, item->limits, item->input, call_off};
  auto running = run(std::move(own));
  Ran ran = CO_TRY(co_await std::move(running));
  if (ran.instead) co_return std::move(*ran.instead);
  Judgement judgement;
  judgement.status = ran.result.status;
  judgement.verdict = verdict_of(ran.result.status);
  judgement.reason = reason_of(ran.result.status);
  judgement.out = std::move(ran.result.out);
  judgement.err = std::move(ran.result.err);
  if (judgement.verdict != Verdict::accepted) co_return judgement;
  if (item->checker) {
    auto asking = ask_checker(std::move(owner), item, std::move(judgement), call_off);
    co_return co_await std::move(asking);
  }
  if (item->expected && !is_same_output(*item->expected, judgement.out, item->compare)) {
    judgement.verdict = Verdict::wrong_answer;
    judgement.reason = "it did not write what is expected";
  }
  co_return judgement;
}

// A checker is the caller's own: one that fails is neither the program's fault nor ours, and would
// fail again.
asio::awaitable<Result<Judgement>> Judge::ask_checker(std::string owner,
                                                      std::shared_ptr<const BatchItem> item,
                                                      Judgement judgement,
                                                      std::shared_ptr<CallOff> call_off) {
  auto place = [](const char* name) { return std::string(kProgramFolder) + "/" + name; };
  Run check{std::move(owner), part(item, *item->checker), {}, checker_limits(), "", call_off};
  check.files.push_back({place("stdin"), item->input, 0644});
  check.files.push_back({place("stdout"), judgement.out, 0644});
  if (item->expected) check.files.push_back({place("expected"), *item->expected, 0644});
  auto running = run(std::move(check));
  Ran ran = CO_TRY(co_await std::move(running));
  if (ran.instead) {
    judgement.verdict = Verdict::refused;
    judgement.reason = "the checker: " + ran.instead->reason;
    judgement.checker.emplace().err = ran.instead->err;
    co_return judgement;
  }
  const ExitStatus& end = ran.result.status;
  if (verdict_of(end) == Verdict::platform) co_return fail(Errc::os, reason_of(end));
  if (end.reason == EndReason::exited && end.exit_code == 1) {
    judgement.verdict = Verdict::wrong_answer;
    judgement.reason = "the checker says so";
  } else if (!end.ok()) {
    judgement.verdict = Verdict::refused;
    judgement.reason = "the checker: " + reason_of(end);
  }
  judgement.checker = std::move(ran.result);
  co_return judgement;
}

}  // namespace asr
