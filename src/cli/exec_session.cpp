// agent-sandbox exec and shell with --session: the program runs in a session of a server.
#include <unistd.h>

#include <cstdio>

#include "cli/attend.hpp"
#include "cli/commands.hpp"
#include "cli/effects_text.hpp"
#include "cli/exec.hpp"
#include "cli/remote_execution.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

// What is known of the command beside its status.
struct Told {
  std::string id;       // once it runs
  json::value details;  // where the status is not enough
};

asio::awaitable<Result<ExitStatus>> use_session(std::shared_ptr<Run> run,
                                                std::shared_ptr<Told> told, std::string session,
                                                Command command) {
  bool wants_effects = command.effects;
  auto starting = RemoteExecution::start(std::move(session), std::move(command));
  auto execution = CO_TRY(co_await std::move(starting));
  told->id = execution->label();
  auto attending = attend(run, execution);
  ExitStatus status = CO_TRY(co_await std::move(attending));
  bool is_enough = run->streams.output == Streams::Output::passed &&
                   status.reason != EndReason::not_started && !wants_effects;
  if (is_enough) co_return status;
  auto describing = execution->describe();
  told->details = CO_TRY(co_await std::move(describing));
  co_return status;
}

// The server cannot be told to end it, so the caller is told that it has not ended.
void say_that_it_goes_on(const Error& why_not, const std::string& session, const std::string& id) {
  if (why_not.code != Errc::timeout) return;  // It has ended by itself.
  complain(Error(why_not.code, why_not.what,
                 "the command may go on; its output: agent-sandbox logs -f " + session + " " + id));
}

void print_effects(const json::value& details) {
  const json::value* effects = details.as_object().if_contains("effects");
  std::fputs(effects ? effects_text(*effects).c_str()
                     : "agent-sandbox: what it did is not known: the server was started anew\n",
             stderr);
}

}  // namespace

Result<int> exec_in_session(const ExecOptions& options, Command command) {
  TRY(options.sandbox.fill_limits(command));
  std::string program = command.argv[0];
  asio::io_context context;
  Streams streams{options.json ? Streams::Output::ignored : Streams::Output::passed, options.tty,
                  options.no_stdin};
  auto run = std::make_shared<Run>(context.get_executor(), streams);
  auto told = std::make_shared<Told>();

  std::optional<RawTerminal> raw;
  if (options.tty && ::isatty(STDIN_FILENO) != 0) raw.emplace();
  auto using_it = use_session(run, told, options.session, std::move(command));
  auto status = run_to_end(context, with_aside(std::move(using_it), pass_signals(run)));
  raw.reset();
  if (!status && run->interrupted_by != 0) {
    if (run->unsent && !options.quiet) say_that_it_goes_on(*run->unsent, options.session, told->id);
    return 128 + run->interrupted_by;
  }
  if (!status) return fail(std::move(status).error());
  if (options.json) std::printf("%s\n", to_text(told->details).c_str());
  std::string reason = why(*status);
  std::string text = status->reason == EndReason::not_started
                         ? text_at(told->details, "start_error")
                         : program + ": " + reason;
  if (!reason.empty() && !options.quiet && !options.json)
    std::fprintf(stderr, "agent-sandbox: %s\n", printable(text).c_str());
  if (options.effects && !options.json) print_effects(told->details);
  return status->reason == EndReason::sandbox_gone ? kPlatformError : status->exit_code;
}

}  // namespace asr
