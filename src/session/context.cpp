#include "session/context.hpp"

#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "base/scope_exit.hpp"
#include "engine/told_effects.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMostOutput = 4 << 20;    // of one cell
constexpr std::size_t kMostResults = 64 << 20;  // likewise
constexpr std::size_t kMostShown = 1000;        // results of one cell; what is more is not kept
constexpr auto kLookForPause = 500ms;
constexpr auto kCompleteWithin = 10s;
constexpr auto kStopWithin = 2s;  // An interpreter that does not let go of a cell is replaced.

using Stream = OutputChunk::Stream;

std::string text_at(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

json::object problem(std::string name, std::string value, std::string trace = {}) {
  if (trace.empty()) trace = name + ": " + value;
  return {{"name", std::move(name)}, {"value", std::move(value)}, {"traceback", std::move(trace)}};
}

// A map from MIME type to text or JSON, and nothing else.
std::optional<json::object> bundle_in(const KernelEvent& event) {
  const json::value* data = event.fields.if_contains("data");
  if (!data || !data->is_object()) return std::nullopt;
  json::object bundle;
  for (const auto& [mime, value] : data->get_object()) {
    if (mime.find('/') == std::string_view::npos || mime.size() > 200) continue;
    bundle[mime] = value;
  }
  const json::value* main = event.fields.if_contains("main");
  bundle["is_main"] = main && main->is_bool() && main->get_bool();
  return bundle;
}

// The names that were asked for, once they are there; what else is said is of no interest.
Result<std::optional<KernelEvent>> answer_in(KernelEvents& events, std::string_view bytes,
                                             std::uint64_t number) {
  TRY(events.feed(bytes));
  for (;;) {
    auto event = TRY(events.next());
    if (!event || (event->kind == KernelEvent::Kind::completions && event->id == number))
      return event;
  }
}

}  // namespace

std::string_view CellAnswer::status() const noexcept {
  if (out_of_memory) return "out_of_memory";
  if (timed_out) return "timeout";
  if (interrupted) return "interrupted";
  return error ? "error" : "ok";
}

Context::Context(Home home, std::string id, LanguagePtr language, std::string cwd,
                 std::map<std::string, std::string> env)
    : executor_(std::move(home.executor)),
      interpreters_(std::move(home.interpreters)),
      id_(std::move(id)),
      language_(std::move(language)),
      cwd_(std::move(cwd)),
      env_(std::move(env)),
      changed_(executor_) {}

Context::Context(Home home, std::string id, LanguagePtr language,
                 std::shared_ptr<Execution> process)
    : Context(std::move(home), std::move(id), std::move(language), "", {}) {
  process_ = std::move(process);
  had_one_ = true;
  // Of cells that an earlier server asked for nobody wants to hear any more.
  last_cell_ = static_cast<std::uint64_t>(now_ms());
}

asio::awaitable<void> Context::take_turn() {
  while (taken_ && !closed_) co_await changed_.wait();
  taken_ = true;
}

asio::awaitable<Result<void>> Context::start(std::shared_ptr<Sandbox> sandbox) {
  KernelStart how;
  how.language = language_;
  how.env = env_;
  how.cwd = cwd_;
  auto starting = interpreters_->start(std::move(sandbox), std::move(how));
  KernelProcess kernel = CO_TRY(co_await std::move(starting));
  count_ = 0;
  auto taking_over = take_over(std::move(kernel));
  co_await std::move(taking_over);
  co_return Result<void>();
}

asio::awaitable<void> Context::take_over(KernelProcess kernel) {
  process_ = std::move(kernel.process);
  frozen_ = std::move(kernel.frozen);
  events_ = std::move(kernel.events);
  version_ = std::move(kernel.version);
  if (process_->label().empty()) {
    auto keeping = keep(process_);
    co_await std::move(keeping);
  }
  had_one_ = true;
}

// Where sandboxes end with the server there is nothing to be done about it.
asio::awaitable<void> Context::keep(std::shared_ptr<Execution> process) {
  auto keeping = process->keep("i:" + language_->name + ":" + id_);
  (void)co_await std::move(keeping);
}

// An interpreter that has died since the last cell is replaced, once.
asio::awaitable<Result<void>> Context::send_cell(std::shared_ptr<Sandbox> sandbox, TurnPtr turn) {
  for (int attempt = 0;; ++attempt) {
    if (!process_) {
      turn->answer.restarted = had_one_;
      auto starting = start(sandbox);
      CO_TRY(co_await std::move(starting));
    }
    std::string text;
    if (!turn->cell.env.empty()) {
      json::object env;
      for (const auto& [name, value] : turn->cell.env) env[name] = value;
      text = kernel_request("environ", last_cell_, environ_text(*language_, env));
    }
    text += kernel_request("execute", ++last_cell_, turn->cell.code);
    auto process = process_;
    if (turn->cell.effects) {
      auto watching = sandbox->watch_effects(process->pid());
      auto watch = co_await std::move(watching);
      if (watch) turn->effects = *std::move(watch);
    }
    auto sending = process->write_stdin(std::move(text));
    auto sent = co_await std::move(sending);
    if (sent) co_return Result<void>();
    process_.reset();
    if (attempt > 0 || sent.error().code != Errc::conflict) co_return fail(sent.error());
  }
}

// What the session says of these variables holds again; others are gone.
asio::awaitable<void> Context::take_back_env(TurnPtr turn) {
  auto process = process_;
  if (!process) co_return;
  json::object env;
  for (const auto& [name, value] : turn->cell.env) {
    auto before = env_.find(name);
    env[name] = before == env_.end() ? json::value(nullptr) : json::value(before->second);
  }
  std::string text = kernel_request("environ", last_cell_, environ_text(*language_, env));
  auto sending = process->write_stdin(std::move(text));
  (void)co_await std::move(sending);
}

asio::awaitable<Result<CellAnswer>> Context::execute(std::shared_ptr<Sandbox> sandbox, Cell cell,
                                                     Listen listen) {
  auto self = shared_from_this();
  auto taking = take_turn();
  co_await std::move(taking);
  if (closed_) co_return fail(Errc::gone, "the context was removed");
  if (cell.admit && !cell.admit()) {
    taken_ = false;
    changed_.ring();
    co_return fail(Errc::gone, "nobody waits for the cell any more");
  }
  ScopeExit give_back([this] {
    taken_ = false;
    running_ = 0;
    changed_.ring();
  });
  if (not_revived_) co_return fail(*not_revived_);
  auto turn = std::make_shared<Turn>(Turn{std::move(cell), {}, std::move(listen)});
  CellAnswer& answer = turn->answer;
  interrupted_ = timed_out_ = asks_ = false;
  auto sending = send_cell(sandbox, turn);
  CO_TRY(co_await std::move(sending));
  running_ = last_cell_;
  auto began = Clock::now();
  if (turn->cell.timeout.count() > 0)
    asio::co_spawn(executor_, watch_time(self, sandbox, running_, turn->cell.timeout),
                   asio::detached);
  auto attending = attend(turn);
  co_await std::move(attending);
  if (turn->cell.env_for_it_alone && !turn->cell.env.empty()) {
    auto taking_back = take_back_env(turn);
    co_await std::move(taking_back);
  }
  if (turn->cell.effects) {
    auto telling = tell_effects(turn);
    co_await std::move(telling);
  }
  answer.duration = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  answer.count = count_;
  answer.interrupted = interrupted_;
  answer.timed_out = timed_out_;
  if (timed_out_) {
    std::string trace = answer.error ? text_at(*answer.error, "traceback") : "";
    answer.error =
        problem("Timeout",
                "the cell took longer than " + std::to_string(turn->cell.timeout.count()) + " ms",
                std::move(trace));
  }
  answer.out = repair_utf8(answer.out);
  answer.err = repair_utf8(answer.err);
  co_return std::move(answer);
}

asio::awaitable<void> Context::tell_effects(TurnPtr turn) {
  auto effects = std::make_shared<Effects>(unknown_effects("the sandbox could not be asked"));
  if (turn->effects) {
    auto asking = turn->effects->finish();
    if (auto told = co_await std::move(asking)) *effects = *std::move(told);
  }
  turn->answer.effects = std::move(effects);
}

// Until the cell is done, or its interpreter is.
asio::awaitable<void> Context::attend(TurnPtr turn) {
  auto process = process_;
  CellAnswer& answer = turn->answer;
  const Listen& listen = turn->listen;
  std::size_t result_bytes = 0;
  for (;;) {
    auto reading = process->read();
    auto chunk = co_await std::move(reading);
    if (!chunk || !*chunk) {
      auto mourning = mourn(turn);
      co_return co_await std::move(mourning);
    }
    std::string& data = (*chunk)->data;
    if ((*chunk)->stream != Stream::reply) {
      bool is_out = (*chunk)->stream == Stream::out;
      std::size_t room = kMostOutput - std::min(kMostOutput, answer.out.size() + answer.err.size());
      answer.dropped += data.size() - std::min(room, data.size());
      data.resize(std::min(room, data.size()));
      (is_out ? answer.out : answer.err) += data;
      if (listen && !data.empty())
        listen(is_out ? "stdout" : "stderr", {{"text", repair_utf8(data)}});
      continue;
    }
    result_bytes += data.size();
    auto fed = result_bytes > kMostResults
                   ? Result<void>(fail(Errc::exhausted, "the results are larger than 64 MiB"))
                   : events_.feed(data);
    for (;;) {
      auto event = fed ? events_.next() : Result<std::optional<KernelEvent>>(fail(fed.error()));
      if (!event) {  // It talks nonsense: the program has been at its channel.
        answer.error = problem("InterpreterBroken", event.error().what);
        lose_variables(answer);
        auto killing = kill(std::exchange(process_, nullptr));
        co_return co_await std::move(killing);
      }
      if (!*event) break;
      auto hearing = hear(turn, std::move(**event));
      if (co_await std::move(hearing) == Heard::done) co_return;
    }
  }
}

asio::awaitable<Context::Heard> Context::hear(TurnPtr turn, KernelEvent event) {
  CellAnswer& answer = turn->answer;
  const Listen& listen = turn->listen;
  // Of an earlier cell: a thread it left behind, or a server before this one.
  if (event.id != running_) co_return Heard::more;
  switch (event.kind) {
    case KernelEvent::Kind::result:
      if (answer.results.size() >= kMostShown) {
        ++answer.dropped;
      } else if (auto bundle = bundle_in(event)) {
        if (listen) listen("result", *bundle);
        answer.results.push_back(std::move(*bundle));
      }
      break;
    case KernelEvent::Kind::error:
      answer.error = problem(text_at(event.fields, "name"), text_at(event.fields, "value"),
                             text_at(event.fields, "traceback"));
      if (listen) listen("error", *answer.error);
      break;
    case KernelEvent::Kind::input: {
      if (turn->cell.somebody_answers && listen) {
        asks_ = true;
        const json::value* password = event.fields.if_contains("password");
        listen("input", {{"prompt", text_at(event.fields, "prompt")},
                         {"password", password && password->is_bool() && password->get_bool()}});
        break;
      }
      auto refusing = process_->write_stdin(kernel_request("noinput", running_, ""));
      (void)co_await std::move(refusing);
      break;
    }
    case KernelEvent::Kind::done: {
      const json::value* count = event.fields.if_contains("count");
      count_ = count && count->is_int64() && count->get_int64() > 0
                   ? static_cast<std::uint64_t>(count->get_int64())
                   : count_ + 1;
      const json::value* files = event.fields.if_contains("files");
      if (files && files->is_array())
        for (const json::value& file : files->get_array())
          if (file.is_string() && answer.files.size() < CellAnswer::kMostFiles)
            answer.files.emplace_back(file.get_string());
      co_return Heard::done;
    }
    default:
      break;
  }
  co_return Heard::more;
}

// Told once: the next cell begins anew without a word.
void Context::lose_variables(CellAnswer& answer) {
  answer.restarted = true;
  had_one_ = false;
}

// The interpreter ended under the cell.
asio::awaitable<void> Context::mourn(TurnPtr turn) {
  CellAnswer& answer = turn->answer;
  auto process = std::exchange(process_, nullptr);
  auto waiting = process->wait();
  auto status = co_await std::move(waiting);
  lose_variables(answer);
  if (status && status->reason == EndReason::out_of_memory) {
    answer.out_of_memory = true;
    answer.error = problem("OutOfMemory", "the cell needed more memory than the session may have");
  } else if (!answer.error) {
    std::string how = !status               ? "with its sandbox"
                      : status->signal != 0 ? "by signal " + std::to_string(status->signal)
                                            : "with exit code " + std::to_string(status->exit_code);
    answer.error = problem("InterpreterEnded", "the interpreter ended " + how);
  }
}

asio::awaitable<void> Context::kill(std::shared_ptr<Execution> process) {
  auto killing = process->signal(SIGKILL);
  (void)co_await std::move(killing);
}

// Time in which the sandbox is paused does not count.
asio::awaitable<void> Context::watch_time(std::shared_ptr<Context> self,
                                          std::shared_ptr<Sandbox> sandbox, std::uint64_t cell,
                                          std::chrono::milliseconds time) {
  auto until = Clock::now() + time;
  for (auto now = Clock::now(); self->running_ == cell && now < until;) {
    bool paused = sandbox->state() == SandboxState::paused;
    co_await self->changed_.wait(std::min(until, now + kLookForPause));
    auto later = Clock::now();
    if (paused) until += later - now;
    now = later;
  }
  if (self->running_ != cell) co_return;
  self->timed_out_ = true;
  auto stopping = stop_cell(self, cell);
  co_await std::move(stopping);
}

asio::awaitable<void> Context::stop_cell(std::shared_ptr<Context> self, std::uint64_t cell) {
  auto process = self->process_;
  if (!process) co_return;
  auto interrupting = process->signal(SIGINT);
  (void)co_await std::move(interrupting);
  auto until = Clock::now() + kStopWithin;
  while (self->running_ == cell && Clock::now() < until) co_await self->changed_.wait(until);
  if (self->running_ != cell) co_return;
  auto killing = kill(process);
  co_await std::move(killing);
}

Result<void> Context::interrupt() {
  if (running_ == 0)
    return fail(Errc::conflict, "no cell runs in this context", "there is nothing to interrupt");
  interrupted_ = true;
  asio::co_spawn(executor_, stop_cell(shared_from_this(), running_), asio::detached);
  return {};
}

asio::awaitable<Result<void>> Context::answer(std::string text) {
  if (!asks_ || !process_) co_return fail(Errc::conflict, "no cell asks for input in this context");
  asks_ = false;
  auto process = process_;
  auto sending = process->write_stdin(kernel_request("input", running_, text));
  co_return co_await std::move(sending);
}

asio::awaitable<Result<std::vector<std::string>>> Context::complete(
    std::shared_ptr<Sandbox> sandbox, std::string text) {
  auto self = shared_from_this();
  std::vector<std::string> matches;
  if (taken_ || not_revived_) co_return matches;  // A cell runs: nobody waits for names.
  taken_ = true;
  ScopeExit give_back([this] {
    taken_ = false;
    changed_.ring();
  });
  if (!process_) {
    auto starting = start(std::move(sandbox));
    CO_TRY(co_await std::move(starting));
  }
  auto process = process_;
  asio::steady_timer patience(executor_, kCompleteWithin);
  end_when_late(patience, process);
  std::uint64_t number = ++last_cell_;
  auto sending = process->write_stdin(kernel_request("complete", number, text));
  CO_TRY(co_await std::move(sending));
  for (;;) {
    auto reading = process->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) {
      process_.reset();
      co_return matches;
    }
    if (chunk->stream != Stream::reply) continue;
    auto event = answer_in(events_, chunk->data, number);
    if (!event) {  // It talks nonsense: there is nobody left to ask.
      auto killing = kill(std::exchange(process_, nullptr));
      co_await std::move(killing);
      co_return matches;
    }
    if (!*event) continue;
    const json::value* found = (*event)->fields.if_contains("matches");
    if (found && found->is_array())
      for (const json::value& match : found->get_array())
        if (match.is_string()) matches.emplace_back(match.get_string());
    co_return matches;
  }
}

asio::awaitable<void> Context::restart() {
  auto self = shared_from_this();
  while (reviving_) co_await changed_.wait();
  if (not_revived_) had_one_ = false;
  not_revived_.reset();
  auto process = process_;
  if (!process) co_return;
  if (running_ != 0) interrupted_ = true;
  auto killing = kill(process);
  co_await std::move(killing);
  while (running_ != 0) co_await changed_.wait();
  if (process_ == process) process_.reset();
  had_one_ = false;  // It was wanted: nothing is lost.
}

void Context::close() {
  closed_ = true;
  if (process_) asio::co_spawn(executor_, kill(process_), asio::detached);
  changed_.ring();
}

json::object Context::describe() const {
  return {{"context_id", id_},
          {"language", language_->name},
          {"cwd", cwd_.empty() ? "/workspace" : cwd_},
          {"version", version_.empty() ? json::value(nullptr) : json::value(version_)},
          {"state", running_ != 0           ? "busy"
                    : process_ || reviving_ ? "ready"
                                            : "idle"},
          {"execution_count", count_}};
}

}  // namespace asr
