// The program: one command per file, found here by name. The only place that turns exceptions into words.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "base/version.hpp"
#include "cli/commands.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Isolated computers for AI agents, in about a millisecond, on any Linux.", "agent-sandbox");
  app.set_version_flag("--version,-V", "agent-sandbox " + std::string(asr::kVersion) + " (" + std::string(asr::kCommit) + ")");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer("Documentation: docs/ and man agent-sandbox. Whatever fails says what to do next.");

  int status = 0;
  asr::add_exec_command(app, status);
  asr::add_shell_command(app, status);
  asr::add_tour_command(app, status);
  asr::add_doctor_command(app, status);
  asr::add_completion_command(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 125: the fault is in the call, not in the program that was to run.
    int code = app.exit(error);
    return code == 0 ? 0 : asr::kUsageError;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "agent-sandbox: internal error: %s\n", error.what());
  } catch (...) {
    std::fputs("agent-sandbox: internal error\n", stderr);
  }
  return asr::kPlatformError;
}
