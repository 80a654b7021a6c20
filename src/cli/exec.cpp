// agent-sandbox exec and shell: one program in a sandbox of its own, used like any other command.

#include <signal.h>
#include <unistd.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/sandbox_options.hpp"
#include "cli/streams.hpp"
#include "cli/terminal.hpp"
#include "engine/engine.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;

struct ExecOptions {
  SandboxOptions sandbox;
  bool json = false;
  bool tty = false;
  bool no_stdin = false;
  bool quiet = false;
};

// One run: what its coroutines share, on one thread.
struct Run {
  Run(const asio::any_io_executor& executor, const ExecOptions& given, Command given_command)
      : options(given),
        command(std::move(given_command)),
        in(executor, STDIN_FILENO),
        out(executor, STDOUT_FILENO),
        err(executor, STDERR_FILENO),
        signals(executor) {
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGUSR1, SIGUSR2}) {
      struct sigaction inherited {};
      ::sigaction(number, nullptr, &inherited);
      if (inherited.sa_handler != SIG_IGN)
        signals.add(number);  // nohup means it for the program, too.
    }
  }

  ExecOptions options;
  Command command;
  CallerStream in, out, err;
  asio::signal_set signals;
  std::shared_ptr<Execution> execution;  // While the program runs.
  int interrupted_by = 0;
  RunResult collected;  // With --json.
};

// The caller's stdin, until it ends or the program does not read any more.
asio::awaitable<void> pass_stdin(std::shared_ptr<Run> run) {
  bool mid_line = false;
  while (!run->options.no_stdin) {
    auto reading = run->in.read();
    auto data = co_await std::move(reading);
    if (!data) break;
    mid_line = data->back() != '\n';
    auto writing = run->execution->write_stdin(*std::move(data));
    if (!co_await std::move(writing)) break;
  }
  if (run->options.tty) {
    // A terminal does not end: the key that says so must be pressed, twice in the middle of a line.
    std::string end_of_file = mid_line ? "\x04\x04" : "\x04";
    auto writing = run->execution->write_stdin(std::move(end_of_file));
    (void)co_await std::move(writing);
  } else {
    auto closing = run->execution->close_stdin();
    (void)co_await std::move(closing);
  }
  asio::steady_timer never(co_await asio::this_coro::executor,
                           asio::steady_timer::time_point::max());
  co_await never.async_wait(asio::use_awaitable);
}

// The program stops and goes on with us, as in any shell.
asio::awaitable<void> stop_together(std::shared_ptr<Execution> execution) {
  auto stopping = execution->signal(SIGSTOP);
  (void)co_await std::move(stopping);
  ::raise(SIGSTOP);
  auto going_on = execution->signal(SIGCONT);
  (void)co_await std::move(going_on);
}

// Ctrl-C and friends go to the program, as they would without a sandbox; a new window size, too.
// Returns when there is no program that could take them: then they are for us.
asio::awaitable<void> pass_signals(std::shared_ptr<Run> run) {
  for (;;) {
    int number = co_await run->signals.async_wait(asio::use_awaitable);
    auto execution = run->execution;
    if (number == SIGWINCH) {
      if (!execution || !run->options.tty) continue;
      auto resizing = execution->resize(terminal_size());
      (void)co_await std::move(resizing);
    } else if (number == SIGTSTP) {
      if (execution)
        co_await stop_together(execution);
      else
        ::raise(SIGSTOP);
    } else {
      run->interrupted_by = number;
      if (!execution) co_return;
      auto signaling = execution->signal(number);
      if (!co_await std::move(signaling)) co_return;
    }
  }
}

asio::awaitable<Result<ExitStatus>> pass_output(std::shared_ptr<Run> run) {
  for (;;) {
    auto reading = run->execution->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) break;
    bool is_out = chunk->stream == OutputChunk::Stream::out;
    if (run->options.json) {
      (is_out ? run->collected.out : run->collected.err) += chunk->data;
      continue;
    }
    auto writing = (is_out ? run->out : run->err).write(std::move(chunk->data));
    if (co_await std::move(writing)) continue;
    // Nobody reads what we write: so nobody reads what the program writes.
    auto closing = run->execution->close_output(chunk->stream);
    (void)co_await std::move(closing);
  }
  auto waiting = run->execution->wait();
  co_return co_await std::move(waiting);
}

asio::awaitable<Result<ExitStatus>> run_program(std::shared_ptr<Run> run,
                                                std::shared_ptr<Sandbox> sandbox) {
  auto starting = sandbox->start(run->command);
  run->execution = CO_TRY(co_await std::move(starting));
  auto running = with_aside(pass_output(run), pass_stdin(run));
  auto status = co_await std::move(running);
  run->execution.reset();
  co_return status;
}

asio::awaitable<Result<ExitStatus>> use_sandbox(std::shared_ptr<Run> run, Engine* engine,
                                                SandboxSpec spec) {
  auto creating = engine->create(std::move(spec));
  auto sandbox = CO_TRY(co_await std::move(creating));
  auto running = run_program(run, sandbox);
  auto status = co_await std::move(running);
  if (status && run->options.json) {
    run->collected.status = *status;
    Usage usage;
    auto measuring = sandbox->usage();
    if (auto measured = co_await std::move(measuring)) usage = *measured;
    std::printf("%s\n", json_result(run->collected, *sandbox, usage).c_str());
  }
  auto ending = sandbox->destroy();
  (void)co_await std::move(ending);
  co_return status;
}

// What the exit code alone does not tell.
std::string why(const ExitStatus& status) {
  switch (status.reason) {
    case EndReason::exited:
    case EndReason::signaled:
      return {};
    case EndReason::out_of_memory:
      return "killed at the memory limit (--memory)";
    case EndReason::wall_time:
      return "killed: out of time (--timeout)";
    case EndReason::cpu_time:
      return "killed: out of cpu time (--cpu-time)";
    case EndReason::output_limit:
      return "killed: too much output (--output-limit)";
    case EndReason::policy:
      return "killed: it made a system call of a forbidden kind (--tier)";
    case EndReason::not_started:
      return errno_error(status.start_errno, "cannot be run").what;
    case EndReason::sandbox_gone:
      return "the sandbox ended before the program did";
    case EndReason::lost:
      return "nobody knows how the program ended";
  }
  return {};
}

Result<Command> command_for(const ExecOptions& options, const std::vector<std::string>& argv) {
  if (argv.empty())
    return fail(Errc::invalid, "no command to run", "give one: agent-sandbox exec ls -l /");
  Command command;
  command.argv = argv;
  command.stdin_mode = options.no_stdin ? StdinMode::closed : StdinMode::pipe;
  TRY(options.sandbox.fill(command));
  if (!options.tty) return command;
  command.terminal = terminal_size();
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && *kind != '\0') command.env.try_emplace("TERM", kind);
  return command;
}

Result<int> exec_or_fail(const ExecOptions& options, const std::vector<std::string>& argv) {
  SandboxSpec spec = TRY(options.sandbox.spec());
  Command command = TRY(command_for(options, argv));
  ::signal(SIGPIPE, SIG_IGN);  // A write that fails tells it, too.

  asio::io_context context;
  auto run = std::make_shared<Run>(context.get_executor(), options, std::move(command));
  EngineOptions engine_options;
  engine_options.zygotes = 1;
  if (options.sandbox.no_cgroups) engine_options.cgroups = EngineOptions::Cgroups::off;
  // Who may run this as root may have it.
  if (spec.network == Network::full) engine_options.full_network = FullNetworkOptions{};
  if (!options.quiet)
    engine_options.log = [](std::string_view line) {
      std::fprintf(stderr, "agent-sandbox: %.*s\n", static_cast<int>(line.size()), line.data());
    };
  auto engine = TRY(Engine::start(context.get_executor(), engine_options));

  std::optional<RawTerminal> raw;
  if (options.tty && ::isatty(STDIN_FILENO) != 0) raw.emplace();
  auto status = run_to_end(
      context, with_aside(use_sandbox(run, engine.get(), std::move(spec)), pass_signals(run)));
  raw.reset();
  if (auto stopped = run_to_end(context, engine->stop()); !stopped && !options.quiet)
    complain(stopped.error());
  if (!status && run->interrupted_by != 0) return 128 + run->interrupted_by;
  if (!status) return fail(std::move(status).error());
  std::string reason = why(*status);
  if (!reason.empty() && !options.quiet)
    std::fprintf(stderr, "agent-sandbox: %s: %s\n", argv[0].c_str(), reason.c_str());
  return status->reason == EndReason::sandbox_gone ? kPlatformError : status->exit_code;
}

int exec(const ExecOptions& options, const std::vector<std::string>& argv) {
  auto code = exec_or_fail(options, argv);
  if (code) return *code;
  return options.json ? print_json_error(code.error()) : complain(code.error());
}

}  // namespace

void add_exec_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command =
      app.add_subcommand("exec", "Run a command in a new sandbox, and destroy it afterwards");
  options->sandbox.declare(*command);
  const char* group = "Streams";
  command->add_flag("--json", options->json, "print the whole result as JSON when it has ended")
      ->group(group);
  command->add_flag("-T,--tty", options->tty, "give it a terminal")->group(group);
  command->add_flag("-n,--no-stdin", options->no_stdin, "leave the caller's stdin alone")
      ->group(group);
  command->add_flag("-q,--quiet", options->quiet, "say nothing beside the command's own output")
      ->group(group);
  // Only described here: main() keeps the command's words from the parser.
  command->add_option("command", call.command)
      ->option_text("[--] COMMAND [ARGUMENT...]")
      ->type_name("COMMAND");
  command->footer(
      "Everything from the first word that is not an option belongs to the command. Signals go to "
      "it, and its\n"
      "stdin, stdout and stderr are the caller's.\n\n"
      "Exit status: the command's own; 128+n if signal n ended it, a limit included; 126 or 127 if "
      "it could\n"
      "not be run; 125 for wrong options; 124 if the sandbox itself failed.\n\n"
      "  agent-sandbox exec python3 -c 'print(6 * 7)'\n"
      "  agent-sandbox exec -p strict --timeout 2s --json -- sh -c 'cat; ls -l' < input\n"
      "  agent-sandbox exec -T -m 1G -e EDITOR -- bash");
  command->callback([options, &call] { call.status = exec(*options, call.command); });
}

void add_shell_command(CLI::App& app, Invocation& call) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command =
      app.add_subcommand("shell", "Open a shell in a new sandbox, destroyed when it ends");
  options->sandbox.declare(*command);
  command->add_flag("-q,--quiet", options->quiet, "say nothing beside the shell's own output")
      ->group("Streams");
  command->footer(
      "bash where the environment has it, sh otherwise; it reads commands from stdin where that is "
      "no terminal.\n"
      "Exit status: as for exec.\n\n"
      "  agent-sandbox shell -u root\n"
      "  agent-sandbox shell -E tar:rootfs.tar.zst < script.sh");
  command->callback([options, &call] {
    options->tty = ::isatty(STDIN_FILENO) != 0;
    std::vector<std::string> argv{"/bin/sh", "-c",
                                  "command -v bash >/dev/null && exec bash || exec sh"};
    call.status = exec(*options, argv);
  });
}

}  // namespace asr
