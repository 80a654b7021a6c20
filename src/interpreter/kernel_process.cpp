#include "interpreter/kernel_process.hpp"

#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr auto kStartWithin = 60s;

using Clock = std::chrono::steady_clock;

asio::awaitable<void> kill(std::shared_ptr<Execution> process) {
  auto killing = process->signal(SIGKILL);
  (void)co_await std::move(killing);
}

// Errc::not_found if it ended before.
asio::awaitable<Result<void>> wait_until_ready(std::shared_ptr<KernelProcess> kernel) {
  auto executor = co_await asio::this_coro::executor;
  asio::steady_timer patience(executor, kStartWithin);
  end_when_late(patience, kernel->process);
  for (;;) {
    auto reading = kernel->process->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk && patience.expiry() <= Clock::now())
      co_return fail(Errc::timeout, "the interpreter does not get ready");
    if (!chunk) co_return fail(Errc::not_found, "it ended");
    if (chunk->stream != OutputChunk::Stream::reply) continue;
    CO_TRY(kernel->events.feed(chunk->data));
    auto event = CO_TRY(kernel->events.next());
    if (!event) continue;
    const json::value* version = event->fields.if_contains("version");
    if (version && version->is_string())
      kernel->version = std::string(version->get_string()).substr(0, 100);
    co_return Result<void>();
  }
}

// The fault of whoever made the environment.
Error broken(const Language& language, const std::string& why) {
  return Error(Errc::invalid,
               "the interpreter for " + language.name + " that this environment brings " + why,
               "what it must do is in docs/kernels.md");
}

Error why_not(const Language& language, const Result<ExitStatus>& status) {
  bool started = !status || status->reason != EndReason::not_started;
  if (!started && language.is_brought())
    return broken(language, errno_error(status->start_errno, "cannot be started").what);
  if (!started)
    return Error(Errc::unsupported,
                 "this environment has no " + language.program + ", which runs " + language.name,
                 "choose an environment that brings it");
  if (status && status->reason == EndReason::out_of_memory)
    return Error(Errc::exhausted, "the interpreter does not fit into the session's memory",
                 "give the session a larger memory limit");
  bool by_itself =
      status && (status->reason == EndReason::exited || status->reason == EndReason::signaled ||
                 status->reason == EndReason::policy);
  if (!by_itself) return Error(Errc::gone, "the session ended before its interpreter was ready");
  if (language.is_brought()) return broken(language, "ended before it was ready");
  // Ours start everywhere else: what is different here is the caller's.
  return Error(Errc::invalid, "the interpreter of this session ended before it was ready",
               "look at the variables of the session, and at what was changed in its environment");
}

asio::awaitable<Result<KernelProcess>> begin(std::shared_ptr<Sandbox> sandbox, KernelStart how) {
  Command command = kernel_command(*how.language, how.frozen);
  command.env = std::move(how.env);
  command.cwd = std::move(how.cwd);
  auto starting = sandbox->start(std::move(command));
  KernelProcess kernel;
  kernel.process = std::shared_ptr<Execution>(CO_TRY(co_await std::move(starting)));
  kernel.frozen = how.frozen;
  co_return kernel;
}

asio::awaitable<Result<KernelProcess>> finish(KernelProcess begun, KernelStart how) {
  auto kernel = std::make_shared<KernelProcess>(std::move(begun));
  Result<void> greeted;
  if (!how.frozen && !how.language->is_brought()) {
    auto greeting = kernel->process->write_stdin(kernel_greeting(*how.language));
    greeted = co_await std::move(greeting);
  }
  if (greeted) {
    auto waiting = wait_until_ready(kernel);
    auto ready = co_await std::move(waiting);
    if (ready) co_return std::move(*kernel);
    if (ready.error().code != Errc::not_found) {
      auto killing = kill(kernel->process);
      co_await std::move(killing);
      bool nonsense = ready.error().code == Errc::internal && how.language->is_brought();
      co_return fail(nonsense ? broken(*how.language, "does not speak the protocol")
                              : ready.error());
    }
  }
  auto waiting = kernel->process->wait();
  auto status = co_await std::move(waiting);
  co_return fail(why_not(*how.language, status));
}

asio::awaitable<Result<KernelProcess>> attempt(std::shared_ptr<Sandbox> sandbox, KernelStart how) {
  auto beginning = begin(std::move(sandbox), how);
  KernelProcess begun = CO_TRY(co_await std::move(beginning));
  auto finishing = finish(std::move(begun), std::move(how));
  co_return co_await std::move(finishing);
}

}  // namespace

void end_when_late(asio::steady_timer& patience, std::shared_ptr<Execution> process) {
  patience.async_wait([process, executor = patience.get_executor()](boost::system::error_code ec) {
    if (!ec) asio::co_spawn(executor, kill(process), asio::detached);
  });
}

asio::awaitable<Result<KernelProcess>> begin_thaw(std::shared_ptr<Sandbox> sandbox,
                                                  KernelStart how) {
  return begin(std::move(sandbox), std::move(how));
}

asio::awaitable<Result<KernelProcess>> finish_thaw(KernelProcess begun,
                                                   std::shared_ptr<Sandbox> sandbox,
                                                   KernelStart how) {
  // Once in some thousand times the kernel puts the new process's own things where the image's must
  // be, and each time elsewhere.
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    auto trying = i == 0 ? finish(std::move(begun), how) : attempt(sandbox, how);
    auto kernel = co_await std::move(trying);
    if (kernel || kernel.error().code != Errc::invalid) co_return kernel;
  }
  co_return fail(Errc::unsupported, "the interpreter does not come to life again");
}

asio::awaitable<Result<KernelProcess>> start_kernel(std::shared_ptr<Sandbox> sandbox,
                                                    KernelStart how) {
  if (how.frozen) {
    auto trying = attempt(sandbox, how);
    auto kernel = co_await std::move(trying);
    if (kernel) co_return kernel;
    how.frozen = nullptr;
  }
  auto trying = attempt(std::move(sandbox), std::move(how));
  co_return co_await std::move(trying);
}

}  // namespace asr
