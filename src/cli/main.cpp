// The program: one command per file, found here by name. The only place that turns exceptions into
// words.

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "base/version.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"

namespace asr {
namespace {

// A descriptor we open must never become somebody's stdout. What was closed stays useless: reading
// from stdin and writing to the others fails, as it would have without us.
void occupy_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    int opened = ::open("/dev/null",
                        fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number: fd
    if (opened != fd) ::_exit(kPlatformError);
  }
}

int refuse(const CLI::App& app, const CLI::ParseError& problem,
           const std::vector<std::string>& words) {
  Error error = explain(app, problem);
  bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  return json ? print_json_error(error) : complain(error);
}

int run(std::vector<std::string> words) {
  CLI::App app("Isolated computers for AI agents, in about a millisecond, on any Linux.",
               "agent-sandbox");
  app.set_version_flag("-V,--version",
                       "agent-sandbox " + std::string(kVersion) + " (" + std::string(kCommit) + ")",
                       "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(0, 1);
  app.footer(
      "agent-sandbox COMMAND --help tells more about a command, man agent-sandbox all of it.\n\n"
      "  agent-sandbox tour                                  see what it does\n"
      "  agent-sandbox exec python3 -c 'print(6 * 7)'        run something");

  Invocation call;
  add_serve_command(app, call);
  add_config_command(app, call);
  add_session_commands(app, call);
  add_volume_commands(app, call);
  add_providers_command(app, call);
  add_snapshot_commands(app, call);
  add_run_command(app, call);
  add_prompt_commands(app, call);
  add_judge_command(app, call);
  add_replay_command(app, call);
  add_copy_command(app, call);
  add_logs_command(app, call);
  add_preview_command(app, call);
  add_events_command(app, call);
  add_key_commands(app, call);
  add_e2b_commands(app, call);
  add_audit_commands(app, call);
  add_exec_command(app, call);
  add_shell_command(app, call);
  add_tour_command(app, call);
  add_doctor_command(app, call);
  add_completion_command(app, call);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    command->group("Commands");
  if (!words.empty() && words[0] == "exec") {
    Words split = split_command(*app.get_subcommand("exec"), {words.begin() + 1, words.end()});
    call.command = std::move(split.command);
    words.resize(1);
    words.insert(words.end(), split.options.begin(), split.options.end());
  }
  try {
    std::vector<std::string> reversed(words.rbegin(),
                                      words.rend());  // The parser takes them from the back.
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help and --version
    return refuse(app, problem, words);
  }
  if (app.get_subcommands().empty()) std::fputs(app.help().c_str(), stdout);
  return call.status;
}

}  // namespace
}  // namespace asr

int main(int argc, char** argv) {
  asr::occupy_standard_streams();
  try {
    return asr::run({argv + std::min(argc, 1), argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "agent-sandbox: internal error: %s\n", error.what());
  } catch (...) {
    std::fputs("agent-sandbox: internal error\n", stderr);
  }
  return asr::kPlatformError;
}
