// agent-sandbox python, node and bash: a prompt on an interpreter of a session, or its code from a
// pipe.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/scope_exit.hpp"
#include "cli/cell_answer.hpp"
#include "cli/commands.hpp"
#include "cli/prompt_cells.hpp"
#include "cli/report.hpp"
#include "cli/terminal.hpp"
#include "cli/unfinished.hpp"
#include "cli/user_files.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;

// A session that nobody removes, because its prompt was killed, ends by itself.
constexpr int kLiveSeconds = 24 * 3600;
constexpr int kIdleSeconds = 4 * 3600;
constexpr std::size_t kMostCode = 4 << 20;  // as the server has it

struct Verb {
  const char* name;      // also of its history
  const char* language;  // as the server calls it
  Tongue tongue;
  const char* prompt;
  const char* more;  // while a line goes on
};

constexpr Verb kVerbs[]{{"python", "python", Tongue::python, ">>> ", "... "},
                        {"node", "javascript", Tongue::javascript, "> ", "... "},
                        {"bash", "bash", Tongue::bash, "$ ", "> "}};

struct PromptOptions {
  std::string session;
  std::string keep = "figures";
  double timeout = 0;
};

Result<std::string> text_from_stdin() {
  std::string text;
  std::string piece(std::size_t{64} << 10, '\0');
  for (;;) {
    ssize_t n = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read the code from stdin");
    if (n == 0) return text;
    text.append(piece, 0, static_cast<std::size_t>(n));
    if (text.size() > kMostCode)
      return fail(Errc::invalid, "the code is larger than 4 MiB",
                  "give it as a file: agent-sandbox cp, then agent-sandbox exec --session");
  }
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t") == std::string::npos;
}

class Prompt {
 public:
  Prompt(const Verb& verb, PromptCells& cells, SignalInbox& signals)
      : verb_(verb),
        cells_(cells),
        history_(state_folder() / (std::string("history-") + verb.name)),
        editor_(signals, history_, [this](const std::string& text) { return names_for(text); }) {}

  int run() {
    std::string code;
    bool is_more = false;  // Lines were typed already that belong to this one.
    for (;;) {
      TypedLine line = editor_.read(is_more ? verb_.more : verb_.prompt);
      if (line.end == TypedLine::End::asked) return 128 + line.signal;
      if (line.end == TypedLine::End::closed) return 0;
      if (line.end != TypedLine::End::entered) {
        code.clear();
        is_more = false;
        continue;
      }
      if (!is_more && is_blank(line.text)) continue;
      code += (is_more ? "\n" : "") + line.text;
      is_more = is_unfinished(verb_.tongue, code);
      if (is_more) continue;
      if (auto leaving = run_cell(std::exchange(code, {}))) return *leaving;
    }
  }

 private:
  // The exit code if this was the last.
  std::optional<int> run_cell(const std::string& code) {
    auto answer = cells_.run(code, &editor_);
    if (answer && has_exited(*answer)) return exit_code_of(*answer);
    if (cells_.wanted_end() != 0) return 128 + cells_.wanted_end();
    if (answer) return std::nullopt;
    if (cells_.is_unread()) return 128 + SIGPIPE;
    int exit_code = complain(answer.error());
    return cells_.may_go_on() ? std::nullopt : std::optional(exit_code);
  }

  // Nobody who presses Tab wants to hear of errors.
  std::vector<std::string> names_for(const std::string& text) {
    auto names = cells_.complete(text);
    return names ? *std::move(names) : std::vector<std::string>();
  }

  const Verb& verb_;
  PromptCells& cells_;
  LineHistory history_;
  LineEditor editor_;
};

// The session's id, and what removes it again if it was made for this.
Result<std::string> session_for(Remote& remote, const PromptOptions& options) {
  if (!options.session.empty()) {
    TRY(remote.call("GET", session_path(options.session), nullptr, 60s));
    return options.session;
  }
  json::object body{{"ttl_s", kLiveSeconds}, {"idle_s", kIdleSeconds}};
  json::value made = TRY(remote.call("POST", "/api/sessions", body, 60s));
  return text_at(made, "session_id");
}

Result<int> run_piped(PromptCells& cells, const std::string& code) {
  auto answer = cells.run(code, nullptr);
  if (cells.wanted_end() != 0) return 128 + cells.wanted_end();
  if (cells.is_unread()) return 128 + SIGPIPE;
  return exit_code_of(TRY(std::move(answer)));
}

Result<int> open_prompt(const Verb& verb, const PromptOptions& options) {
  bool is_piped = ::isatty(STDIN_FILENO) == 0;
  std::string code;
  if (is_piped) code = TRY(text_from_stdin());
  // Before the first thread, so that signals come nowhere else.
  SignalInbox signals;
  Remote remote = TRY(Remote::find());
  std::string session = TRY(session_for(remote, options));
  ScopeExit end([&] {
    if (options.session.empty()) (void)remote.call("DELETE", session_path(session), nullptr, 15s);
  });
  PromptCells cells(remote.another({}), {session, verb.language, options.keep, options.timeout},
                    signals);
  if (is_piped) return run_piped(cells, code);
  TRY(cells.complete(""));  // Whether there is such an interpreter; it starts meanwhile.
  std::fprintf(stderr, "%s %s in session %s; Ctrl-C interrupts, Ctrl-D leaves%s\n", verb.name,
               cells.version().c_str(), session.c_str(),
               options.session.empty() ? " and removes it" : "");
  return Prompt(verb, cells, signals).run();
}

void add_prompt_command(CLI::App& app, Invocation& invocation, const Verb& verb,
                        const std::string& what) {
  auto options = std::make_shared<PromptOptions>();
  CLI::App* command = app.add_subcommand(verb.name, what);
  auto* session = command->add_option("--session", options->session, "In this session, which stays")
                      ->type_name("ID");
  command
      ->add_option("--keep", options->keep, "A folder for the pictures and files that cells make")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "Seconds each cell may take")
      ->type_name("SECONDS")
      ->check(CLI::Validator(CLI::NonNegativeNumber).description(""));
  command->footer(
      "Variables stay from cell to cell. Tab completes, Ctrl-C interrupts a cell and keeps the "
      "variables,\nCtrl-D leaves. Without --session a new session is used, and removed at the end. "
      "Where stdin is no\nterminal, all of it is one cell.\n\n"
      "Exit status: of code from a pipe, as if it had been run alone; 130 if it was interrupted, "
      "137 for a\nlimit.\n\n"
      "  agent-sandbox " +
      std::string(verb.name) + "\n  agent-sandbox " + verb.name +
      " --session \"$id\" --timeout 60\n  agent-sandbox " + verb.name + " < program");
  command->callback([options, session, &verb, &invocation] {
    if (session->count() > 0 && options->session.empty()) {
      invocation.status = complain(Error(Errc::invalid, "--session names no session",
                                         "agent-sandbox session list has them"));
      return;
    }
    auto status = open_prompt(verb, *options);
    invocation.status = status ? *status : complain(status.error());
  });
}

}  // namespace

void add_prompt_commands(CLI::App& app, Invocation& invocation) {
  add_prompt_command(app, invocation, kVerbs[0], "A Python prompt in a session");
  add_prompt_command(app, invocation, kVerbs[1], "A JavaScript prompt in a session");
  add_prompt_command(app, invocation, kVerbs[2], "A Bash prompt in a session");
}

}  // namespace asr
