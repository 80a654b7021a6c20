// agent-sandbox exec: one program in a sandbox of its own, used like any other command.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>

#include "base/scope_exit.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/sandbox_options.hpp"
#include "engine/engine.hpp"

namespace asr {

namespace {

struct ExecOptions {
  SandboxOptions sandbox;
  bool json = false;
  bool tty = false;
  bool quiet = false;
  std::vector<std::string> argv;
};

TerminalSize terminal_size() {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return {};
  return {size.ws_row, size.ws_col};
}

// The caller's terminal passes every key on for as long as this lives.
class RawTerminal {
 public:
  RawTerminal() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

 private:
  termios before_{};
  bool changed_ = false;
};

bool write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

// The caller's stdin, until it ends or the program does. Regular files cannot be waited for, and need not.
asio::awaitable<void> pass_stdin(std::shared_ptr<Execution> execution) {
  auto executor = co_await asio::this_coro::executor;
  asio::posix::stream_descriptor in(executor);
  boost::system::error_code ec;
  in.assign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), ec);
  bool can_wait = !ec;
  std::string buffer(64 * 1024, '\0');
  for (;;) {
    if (can_wait) {
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      co_await in.async_wait(asio::posix::stream_descriptor::wait_read, token);
      if (ec == boost::asio::error::operation_aborted) co_return;
      if (ec) can_wait = false;  // epoll refuses regular files.
    }
    ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) break;
    auto writing = execution->write_stdin(buffer.substr(0, static_cast<std::size_t>(n)));
    if (!co_await std::move(writing)) co_return;  // The program reads no more.
  }
  auto closing = execution->close_stdin();
  (void)co_await std::move(closing);
}

// Ctrl-C and friends go to the program, as they would without a sandbox; a new window size, too.
asio::awaitable<void> pass_signals(std::shared_ptr<Execution> execution, bool tty) {
  auto executor = co_await asio::this_coro::executor;
  asio::signal_set signals(executor, SIGINT, SIGTERM, SIGHUP);
  signals.add(SIGQUIT);
  signals.add(SIGWINCH);
  for (;;) {
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    int number = co_await signals.async_wait(token);
    if (ec) co_return;
    if (number == SIGWINCH) {
      if (!tty) continue;
      auto resizing = execution->resize(terminal_size());
      (void)co_await std::move(resizing);
      continue;
    }
    auto signaling = execution->signal(number);
    (void)co_await std::move(signaling);
  }
}

int code_of(const ExitStatus& status, const std::string& program, bool quiet) {
  auto say = [&](const char* what) {
    if (!quiet) std::fprintf(stderr, "agent-sandbox: %s: %s\n", program.c_str(), what);
  };
  switch (status.reason) {
    case EndReason::exited:
    case EndReason::signaled: break;
    case EndReason::out_of_memory: say("killed at the memory limit (--memory)"); break;
    case EndReason::wall_time: say("killed: out of time (--timeout)"); break;
    case EndReason::cpu_time: say("killed: out of cpu time (--cpu-time)"); break;
    case EndReason::output_limit: say("killed: too much output (--output-limit)"); break;
    case EndReason::policy: say("killed: it made a system call of a forbidden kind"); break;
    case EndReason::not_started: say(errno_error(status.start_errno, "cannot be run").what.c_str()); break;
    case EndReason::sandbox_gone: say("the sandbox ended"); return kPlatformError;
  }
  return status.exit_code;
}

asio::awaitable<Result<int>> run_streaming(std::shared_ptr<Sandbox> sandbox, Command command, bool tty, bool quiet) {
  auto executor = co_await asio::this_coro::executor;
  std::string program = command.argv[0];
  auto starting = sandbox->start(std::move(command));
  std::shared_ptr<Execution> execution = CO_TRY(co_await std::move(starting));
  asio::co_spawn(executor, pass_stdin(execution), asio::detached);
  asio::co_spawn(executor, pass_signals(execution, tty), asio::detached);
  for (;;) {
    auto reading = execution->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) break;
    bool is_out = chunk->stream == OutputChunk::Stream::out;
    if (!write_all(is_out ? STDOUT_FILENO : STDERR_FILENO, chunk->data)) {
      // Our reader is gone: the program learns it the usual way.
      auto signaling = execution->signal(SIGPIPE);
      (void)co_await std::move(signaling);
      break;
    }
  }
  auto waiting = execution->wait();
  ExitStatus status = CO_TRY(co_await std::move(waiting));
  co_return code_of(status, program, quiet);
}

asio::awaitable<Result<int>> run_collected(std::shared_ptr<Sandbox> sandbox, Command command) {
  std::string input;
  if (::isatty(STDIN_FILENO) == 0) {
    std::string chunk(64 * 1024, '\0');
    ssize_t n = 0;
    while ((n = ::read(STDIN_FILENO, chunk.data(), chunk.size())) > 0)
      input.append(chunk.data(), static_cast<std::size_t>(n));
  }
  auto running = sandbox->run(std::move(command), std::move(input));
  RunResult result = CO_TRY(co_await std::move(running));
  Usage usage;
  auto measuring = sandbox->usage();
  if (auto measured = co_await std::move(measuring)) usage = *measured;
  std::printf("%s\n", json_result(result, *sandbox, usage).c_str());
  co_return result.status.exit_code;
}

asio::awaitable<Result<int>> execute(Engine& engine, SandboxSpec spec, Command command, ExecOptions options) {
  auto creating = engine.create(std::move(spec));
  auto sandbox = CO_TRY(co_await std::move(creating));
  auto running = options.json ? run_collected(sandbox, std::move(command))
                              : run_streaming(sandbox, std::move(command), options.tty, options.quiet);
  auto code = co_await std::move(running);
  auto ending = sandbox->destroy();
  (void)co_await std::move(ending);
  sandbox.reset();
  auto stopping = engine.stop();
  (void)co_await std::move(stopping);
  co_return code;
}

int exec(const ExecOptions& options) {
  auto complain_here = [&](const Error& error) {
    if (options.json) std::printf("%s\n", json_error(error).c_str());
    return complain(error);
  };
  auto spec = options.sandbox.spec();
  if (!spec) return complain_here(spec.error());
  Command command;
  command.argv = options.argv;
  command.stdin_mode = StdinMode::pipe;
  if (auto filled = options.sandbox.fill(command); !filled) return complain_here(filled.error());
  if (options.tty) command.terminal = terminal_size();

  asio::io_context context;
  EngineOptions engine_options;
  engine_options.zygotes = 1;
  if (options.sandbox.no_cgroups) engine_options.cgroups = EngineOptions::Cgroups::off;
  if (!options.quiet)
    engine_options.log = [](std::string_view line) {
      std::fprintf(stderr, "agent-sandbox: %.*s\n", static_cast<int>(line.size()), line.data());
    };
  auto engine = Engine::start(context.get_executor(), engine_options);
  if (!engine) return complain_here(engine.error());
  ::signal(SIGPIPE, SIG_IGN);

  std::optional<RawTerminal> raw;
  if (options.tty && ::isatty(STDIN_FILENO) != 0) raw.emplace();
  auto code = run_to_end(context, execute(**engine, *spec, std::move(command), options));
  raw.reset();
  if (!code) return complain_here(code.error());
  return *code;
}

}  // namespace

void add_exec_command(CLI::App& app, int& status) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command = app.add_subcommand("exec", "Run a command in a new sandbox, and destroy it afterwards");
  options->sandbox.declare(*command);
  command->add_flag("--json", options->json, "print the whole result as JSON when it has ended");
  command->add_flag("-T,--tty", options->tty, "give it a terminal");
  command->add_flag("-q,--quiet", options->quiet, "say nothing beside the command's own output");
  command->add_option("command", options->argv, "the command and its arguments, after --")->required();
  command->positionals_at_end();
  command->footer(
      "Exit status: the command's own; 128+n if signal n ended it; 126 or 127 if it could not be run;\n"
      "125 for wrong options; 124 if the sandbox itself failed.\n\n"
      "  agent-sandbox exec -- python3 -c 'print(6 * 7)'\n"
      "  agent-sandbox exec -p strict --timeout 2s -- ./a.out < input");
  command->callback([options, &status] { status = exec(*options); });
}

void add_shell_command(CLI::App& app, int& status) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* command = app.add_subcommand("shell", "Open a shell in a new sandbox");
  options->sandbox.declare(*command);
  command->callback([options, &status] {
    options->tty = ::isatty(STDIN_FILENO) != 0;
    options->argv = {"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i || exec sh -i"};
    if (!options->tty) options->argv = {"/bin/sh"};
    status = exec(*options);
  });
}

}  // namespace asr
