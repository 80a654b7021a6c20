// agent-sandbox judge: programs of a dataset, judged by a server, and what came out of it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/remote_batch.hpp"
#include "cli/report.hpp"
#include "cli/signal_inbox.hpp"
#include "cli/tally.hpp"

namespace asr {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPlainEvery = 5s;  // where nobody looks at a terminal
constexpr std::size_t kMostTold = 3;

struct JudgeOptions {
  std::string dataset, solutions, out;
  ItemDefaults defaults;
  std::size_t at_once = RemoteBatch::kMostItems;
  bool json = false;
};

Result<Dataset> dataset_of(const JudgeOptions& options) {
  std::optional<Solutions> solutions;
  if (!options.solutions.empty()) {
    std::ifstream file(options.solutions);
    if (!file) return fail(Errc::not_found, "cannot read " + options.solutions);
    solutions = TRY(read_solutions(file, options.solutions));
  }
  std::ifstream file(options.dataset);
  if (!file) return fail(Errc::not_found, "cannot read " + options.dataset);
  return read_dataset(file, options.dataset, solutions ? &*solutions : nullptr, options.defaults);
}

// How far it is, for people: a line that changes, or a new one now and then.
class JudgeProgress {
 public:
  explicit JudgeProgress(const Tally& tally) : tally_(tally) {}

  void look() {
    if (line_.is_due())
      return line_.show(progress_bar(tally_.done(), tally_.total(), 20) + " " + text());
    auto now = Clock::now();
    if (line_.is_shown() || now - last_ < kPlainEvery) return;
    last_ = now;
    std::fprintf(stderr, "agent-sandbox: %s\n", text().c_str());
  }
  void clear() { line_.clear(); }
  std::chrono::milliseconds took() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
  }

 private:
  std::string text() const {
    std::size_t done = tally_.done();
    double seconds = std::max(0.001, static_cast<double>(took().count()) / 1000);
    double rate = static_cast<double>(done) / seconds;
    std::string text = std::to_string(done) + " of " + std::to_string(tally_.total());
    if (done == 0) return text;
    char speed[32];
    std::snprintf(speed, sizeof(speed), "%.1f/s", rate);
    double left = static_cast<double>(tally_.total() - done) / rate;
    text += ", " + std::string(speed) + ", " +
            format_duration(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * left))) +
            " left, " + tally_.words();
    return text;
  }

  const Tally& tally_;
  StatusLine line_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point last_ = began_;
};

class Judging {
 public:
  Judging(const JudgeOptions& options, const Dataset& dataset)
      : options_(options), dataset_(dataset), tally_(dataset.items.size(), dataset.tasks) {}

  Result<int> run() {
    if (!options_.out.empty()) {
      out_.open(options_.out, std::ios::trunc);
      if (!out_) return fail(Errc::denied, "cannot write " + options_.out);
    }
    Remote remote = TRY(Remote::find());
    auto take = [this](const JudgeItem& item, json::object verdict) {
      take_verdict(item, std::move(verdict));
    };
    RemoteBatch batch(std::move(remote), options_.dataset, {take, [this] { return go_on(); }});
    auto judged = batch.judge(dataset_.items, options_.at_once);
    auto took = progress_.took();
    progress_.clear();
    if (!judged && tally_.done() == 0) return fail(judged.error());
    tell(took, judged ? nullptr : &judged.error());
    if (!judged) return kPlatformError;
    out_.close();
    if (!options_.out.empty() && !out_) return fail(Errc::os, "cannot write " + options_.out);
    if (ended_by_ != 0) return 128 + ended_by_;
    return tally_.is_sound() ? 0 : kPlatformError;
  }

 private:
  void take_verdict(const JudgeItem& item, json::object verdict) {
    std::string word = text_at(verdict, "verdict");
    tally_.add(item.task, word);
    if (word == "platform" && ++unjudged_ <= kMostTold) {
      progress_.clear();
      std::fprintf(stderr, "agent-sandbox: %s could not be judged: %s\n",
                   printable(item.id).c_str(), printable(text_at(verdict, "reason")).c_str());
    }
    if (!out_.is_open()) return;
    verdict.erase("number");  // of one batch; there may be several
    verdict["task_id"] = item.task;
    out_ << to_text(verdict) << "\n";
  }

  bool go_on() {
    while (auto signal = signals_.take()) {
      if (*signal == SIGTSTP) ::kill(::getpid(), SIGSTOP);
      if (*signal == SIGINT || wants_the_end(*signal)) ended_by_ = *signal;
    }
    progress_.look();
    return ended_by_ == 0;
  }

  // `problem`: why it is not all; null if it is.
  void tell(std::chrono::milliseconds took, const Error* problem) const {
    if (options_.json) {
      json::object summary = tally_.summary(took);
      summary["unsolved"] = dataset_.unsolved;
      if (problem) summary["error"] = json_of(*problem);
      std::printf("%s\n", to_text(summary).c_str());
      return;
    }
    std::fputs(tally_.table(took).c_str(), stdout);
    if (dataset_.unsolved > 0)
      std::printf("%zu tasks have no solution and count for nothing\n", dataset_.unsolved);
    if (problem) complain(*problem);
  }

  const JudgeOptions& options_;
  const Dataset& dataset_;
  Tally tally_;
  SignalInbox signals_;
  JudgeProgress progress_{tally_};
  std::ofstream out_;
  std::size_t unjudged_ = 0;
  int ended_by_ = 0;
};

Result<int> judge(const JudgeOptions& options) {
  Dataset dataset = TRY(dataset_of(options));
  return Judging(options, dataset).run();
}

}  // namespace

void add_judge_command(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<JudgeOptions>();
  CLI::App* command = app.add_subcommand("judge", "Judge the programs of a dataset on a server");
  command->add_option("--dataset", options->dataset, "Tasks, one JSON object a line")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--solutions", options->solutions,
                   "Programs to judge instead of those of the dataset")
      ->type_name("PATH");
  command->add_option("--out", options->out, "A file for the verdicts, one JSON object a line")
      ->type_name("PATH");
  command->add_option("--language", options->defaults.language, "Where a task names none")
      ->type_name("python|javascript|bash|c|cpp")
      ->capture_default_str();
  command->add_option("--at-once", options->at_once, "As many are sent at a time")
      ->type_name("COUNT")
      ->check(CLI::Range(std::size_t{1}, RemoteBatch::kMostItems).description(""));
  command->add_option("--wall", options->defaults.wall_s, "Seconds a program may take")
      ->type_name("SECONDS")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""));
  command->add_option("--memory", options->defaults.memory_mb, "Mebibytes a program may use")
      ->type_name("COUNT")
      ->check(CLI::Validator(CLI::PositiveNumber).description(""));
  command->add_flag("--json", options->json, "The summary as JSON");
  command->footer(
      "A line of the dataset is an item of POST /api/batch, a problem of HumanEval or one of MBPP. "
      "Solutions\nare lines such as {\"task_id\": …, \"completion\": …}, several for a task if "
      "need "
      "be. Ctrl-C cancels, and\nshows what is known.\n\n"
      "Exit status: 0 if every program was judged, whatever the verdicts; 124 if some could not "
      "be.\n\n"
      "  agent-sandbox judge --dataset HumanEval.jsonl\n"
      "  agent-sandbox judge --dataset mbpp.jsonl --solutions samples.jsonl --out verdicts.jsonl");
  command->callback([options, &invocation] {
    auto status = judge(*options);
    invocation.status = status          ? *status
                        : options->json ? print_json_error(status.error())
                                        : complain(status.error());
  });
}

}  // namespace asr
