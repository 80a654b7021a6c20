// agent-sandbox replay: a history done again, and where it goes another way.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <fstream>

#include "base/scope_exit.hpp"
#include "cli/commands.hpp"
#include "cli/replay.hpp"
#include "cli/report.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

constexpr int kDiverged = 1;

struct ReplayOptions {
  std::string file, session, environment, files;
  std::vector<std::string> env, input;
  std::uint64_t until = 0;
  bool go_on = false;
  bool stop = false;  // which it does anyway
  bool keep = false;
  bool json = false;
};

Result<ReplayMaterial> material_of(const ReplayOptions& options) {
  ReplayMaterial material;
  if (!options.files.empty()) material.files = TRY(ReplayFiles::in(options.files));
  for (const std::string& pair : options.env) {
    std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(Errc::invalid, "'" + pair + "' is not NAME=VALUE");
    material.env[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  for (const std::string& pair : options.input) {
    std::size_t equals = pair.find('=');
    std::uint64_t number = 0;
    auto [end, ec] = std::from_chars(pair.data(), pair.data() + pair.size(), number);
    if (ec != std::errc() || equals == std::string::npos || end != pair.data() + equals)
      return fail(Errc::invalid, "'" + pair + "' is not STEP=PATH");
    material.input[number] = pair.substr(equals + 1);
  }
  return material;
}

// Tells of each step as it is done, and of the first that differs at the end.
class Report {
 public:
  explicit Report(const ReplayOptions& options) : options_(options) {}

  void begin(const ReplayHistory& history, std::vector<std::string> lacks) {
    if (history.dropped > 0)
      lacks.push_back("the first " + std::to_string(history.dropped) +
                      " steps, which made room for others");
    lacks_ = std::move(lacks);
    if (options_.json) return;
    for (const std::string& what : lacks_)
      std::printf("%s %s\n", paint_.fair(padded("lacks", 8)).c_str(), what.c_str());
  }

  bool see(const ReplayOutcome& outcome) {
    using Kind = ReplayOutcome::Kind;
    ++counts_[outcome.kind];
    std::string word = padded(to_string(outcome.kind), 8);
    const ReplayStep& step = *outcome.step;
    std::string number = step.number ? std::to_string(*step.number) : "";
    if (options_.json) {
      steps_.push_back(json_of(outcome));
    } else {
      std::string mark = outcome.kind == Kind::same      ? paint_.good(word)
                         : outcome.kind == Kind::differs ? paint_.bad(word)
                                                         : paint_.fair(word);
      std::printf("%s %5s  %s\n", mark.c_str(), number.c_str(), step.summary().c_str());
      for (const std::string& what : outcome.lacks)
        std::printf("%15s %s\n", "", paint_.dim("lacks " + what).c_str());
      std::fflush(stdout);
    }
    if (outcome.kind != Kind::differs) return true;
    if (!first_) first_ = outcome;
    return options_.go_on;
  }

  int end(const std::string& session) {
    if (options_.json) return end_json(session);
    if (first_) {
      std::printf("\n%s\n", paint_
                                .bold("The first to differ is " + first_->step->name() + ": " +
                                      first_->step->summary())
                                .c_str());
      for (const Difference& difference : first_->differences) show(difference);
    }
    using Kind = ReplayOutcome::Kind;
    std::size_t all = 0;
    for (const auto& [kind, count] : counts_) all += count;
    std::printf("%s%zu steps: %zu the same, %zu differ", first_ ? "\n" : "", all,
                counts_[Kind::same], counts_[Kind::differs]);
    if (counts_[Kind::lacks] > 0) std::printf(", %zu lack something", counts_[Kind::lacks]);
    if (counts_[Kind::begun] > 0) std::printf(", %zu run on", counts_[Kind::begun]);
    std::printf("\n");
    if (options_.keep) std::printf("The session is %s\n", session.c_str());
    return first_ ? kDiverged : 0;
  }

 private:
  static json::object json_of(const ReplayOutcome& outcome) {
    json::array lacks;
    for (const std::string& what : outcome.lacks) lacks.emplace_back(repair_utf8(what));
    json::array differences;
    for (const Difference& one : outcome.differences)
      differences.push_back(json::object{{"what", repair_utf8(one.what)},
                                         {"before", repair_utf8(one.before)},
                                         {"after", repair_utf8(one.after)},
                                         {"diff", repair_utf8(diff_of(one))}});
    const ReplayStep& step = *outcome.step;
    return {{"number", step.number ? json::value(*step.number) : json::value(nullptr)},
            {"kind", step.kind},
            {"summary", step.summary()},
            {"outcome", to_string(outcome.kind)},
            {"lacks", std::move(lacks)},
            {"differences", std::move(differences)}};
  }

  int end_json(const std::string& session) {
    json::array lacks;
    for (const std::string& what : lacks_) lacks.emplace_back(repair_utf8(what));
    bool complete = lacks_.empty() && counts_[ReplayOutcome::Kind::lacks] == 0;
    json::object all{{"session_id", session},       {"diverged", first_.has_value()},
                     {"first_divergence", nullptr}, {"complete", complete},
                     {"lacks", std::move(lacks)},   {"steps", std::move(steps_)}};
    if (first_ && first_->step->number) all["first_divergence"] = *first_->step->number;
    std::printf("%s\n", to_text(all).c_str());
    return first_ ? kDiverged : 0;
  }

  void show(const Difference& difference) const {
    std::string text = diff_of(difference);
    std::printf("%s\n", printable(difference.what).c_str());
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      at = end + 1;
      std::string shown = line.starts_with('+')   ? paint_.good(line)
                          : line.starts_with('-') ? paint_.bad(line)
                                                  : line;
      std::printf("  %s\n", shown.c_str());
    }
  }

  const ReplayOptions& options_;
  Paint paint_;
  std::vector<std::string> lacks_;
  std::map<ReplayOutcome::Kind, std::size_t> counts_;
  std::optional<ReplayOutcome> first_;
  json::array steps_;
};

Result<int> replay(const ReplayOptions& options) {
  std::ifstream file(options.file);
  if (!file) return fail(Errc::not_found, "cannot read " + options.file);
  ReplayHistory history = TRY(read_history(file, options.file, options.until));
  ReplayMaterial material = TRY(material_of(options));
  Remote remote = TRY(Remote::find());
  std::string session = options.session;
  bool is_own = session.empty();
  if (is_own)
    session = TRY(Replay::make_session(remote, history.session, options.environment, material));
  ScopeExit end([&] {
    if (is_own && !options.keep) (void)remote.call("DELETE", session_path(session));
  });
  Replay replay(remote.another({}), session, std::move(material));
  Report report(options);
  std::vector<std::string> lacks;
  if (is_own) lacks = TRY(replay.furnish(history.session));
  report.begin(history, std::move(lacks));
  TRY(replay.run(history, options.until,
                 [&](const ReplayOutcome& outcome) { return report.see(outcome); }));
  return report.end(session);
}

}  // namespace

void add_replay_command(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = app.add_subcommand(
      "replay", "Do the steps of a history again, and tell where they go another way");
  command->add_option("file", options->file, "What session history --jsonl wrote")
      ->required()
      ->check(CLI::ExistingFile);
  CLI::Option* session =
      command->add_option("--session", options->session, "In this session; if not said, a new one");
  command->add_option("--environment", options->environment, "Of the new one, instead of its own")
      ->excludes(session);
  command->add_option("--until", options->until, "No step after this one")->type_name("STEP");
  command->add_option("--files", options->files, "A folder with the files that were uploaded")
      ->type_name("DIR");
  command->add_option("--env", options->env, "The value of a variable; they are in no history")
      ->type_name("NAME=VALUE");
  command->add_option("--input", options->input, "What a command read; that is in no history")
      ->type_name("STEP=PATH");
  CLI::Option* stop =
      command->add_flag("--stop-at-divergence", options->stop,
                        "End with the first step that differs; it does if not said");
  command->add_flag("--continue", options->go_on, "Go on after it")->excludes(stop);
  command->add_flag("--keep", options->keep, "Leave the new session as it is at the end");
  command->add_flag("--json", options->json, "What came out as JSON");
  command->footer(
      "Compared are how each step ended, what it wrote and what it was worth. Not compared are "
      "times, what was\nused, and addresses of memory such as 0x7f12345678.\n\n"
      "Exit status: 0 if nothing differs, 1 if something does.\n\n"
      "  agent-sandbox session history $id --jsonl steps.jsonl\n"
      "  agent-sandbox replay steps.jsonl --files uploads --env TOKEN=$TOKEN");
  command->callback([options, &invocation] {
    auto status = replay(*options);
    invocation.status = status          ? *status
                        : options->json ? print_json_error(status.error())
                                        : complain(status.error());
  });
}

}  // namespace asr
