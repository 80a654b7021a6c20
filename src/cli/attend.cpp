#include "cli/attend.hpp"

#include <signal.h>
#include <unistd.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "cli/run.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

// The caller's stdin, until it ends or the program does not read any more.
asio::awaitable<void> pass_stdin(std::shared_ptr<Run> run) {
  bool mid_line = false;
  while (!run->streams.no_stdin) {
    auto reading = run->in.read();
    auto data = co_await std::move(reading);
    if (!data) break;
    mid_line = data->back() != '\n';
    auto writing = run->execution->write_stdin(*std::move(data));
    if (!co_await std::move(writing)) break;
  }
  if (run->streams.tty) {
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

asio::awaitable<Result<ExitStatus>> pass_output(std::shared_ptr<Run> run) {
  for (;;) {
    auto reading = run->execution->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) break;
    bool is_out = chunk->stream == OutputChunk::Stream::out;
    if (run->streams.output == Streams::Output::ignored) continue;
    if (run->streams.output == Streams::Output::collected) {
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

}  // namespace

Run::Run(const asio::any_io_executor& executor, Streams given)
    : streams(given),
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

asio::awaitable<Result<ExitStatus>> attend(std::shared_ptr<Run> run,
                                           std::shared_ptr<Execution> execution) {
  run->execution = std::move(execution);
  auto running = with_aside(pass_output(run), pass_stdin(run));
  auto status = co_await std::move(running);
  run->execution.reset();
  co_return status;
}

asio::awaitable<void> pass_signals(std::shared_ptr<Run> run) {
  for (;;) {
    int number = co_await run->signals.async_wait(asio::use_awaitable);
    auto execution = run->execution;
    if (number == SIGWINCH) {
      if (!execution || !run->streams.tty) continue;
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
      auto sent = co_await std::move(signaling);
      if (sent) continue;
      run->unsent = sent.error();
      co_return;
    }
  }
}

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

}  // namespace asr
