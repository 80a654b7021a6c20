#include "guest/guest.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "guest/guest_loop.hpp"

namespace asr {

wire::Failure failure_of(const Error& error) {
  wire::Failure failure;
  failure.code = static_cast<std::uint8_t>(error.code);
  failure.what = error.what;
  failure.hint = error.hint;
  return failure;
}

void Guest::handle(const Frame& frame, std::vector<UniqueFd> fds) {
  if (auto done = dispatch(frame, fds); !done) (void)answer(frame.id, failure_of(done.error()));
}

void Guest::reap() {
  int status = 0;
  rusage usage{};
  int pid = 0;
  while ((pid = ::wait4(programs_.next_to_reap(), &status, WNOHANG, &usage)) > 0) {
    if (auto ending = programs_.reaped(pid, status, usage)) {
      if (ending->measured) (void)answer(ending->id, *ending->measured);
      (void)answer(ending->id, ending->ended);
      continue;
    }
    auto found = workers_.find(pid);
    if (found == workers_.end()) continue;  // An orphan of the workload's.
    auto [id, relays, watches] = found->second;
    workers_.erase(found);
    if (relays != 0) programs_.hang_up(relays);
    if (id == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    // Killed by the workload, or for want of memory; or the daemon stopped it and waits for
    // nothing.
    (void)answer(id,
                 failure_of(Error(Errc::exhausted, "the operation was ended inside the sandbox")));
  }
}

void Guest::let_out() {
  for (UniqueFd& connection : egress_.accept()) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(connection));
    (void)answer(0, wire::Accepted{}, std::move(fds));
  }
}

void Guest::serve() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd signals(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) ::_exit(1);
  for (;;) {
    auto sleep = programs_.enforce();
    short wanted = outbox_.empty() ? POLLIN : POLLOUT;
    int door = outbox_.empty() ? egress_.waits_on(Egress::Clock::now()) : -1;
    if (auto rest = egress_.sleep(); rest.count() > 0 && (sleep.count() < 0 || rest < sleep))
      sleep = rest;
    std::array<pollfd, 4> ready{{{config_.socket, wanted, 0},
                                 {signals.get(), POLLIN, 0},
                                 {door, POLLIN, 0},
                                 {refusals_.waits_on(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(sleep.count())) < 0 && errno != EINTR)
      ::_exit(1);
    if (ready[1].revents != 0) {
      signalfd_siginfo info;
      while (::read(signals.get(), &info, sizeof info) > 0) {
      }
      reap();
    }
    if (ready[2].revents != 0) let_out();
    if (ready[3].revents != 0) refusals_.answer_some();
    if (ready[0].revents == 0) continue;
    if (wanted == POLLOUT) {
      if (!outbox_.flush()) ::_exit(0);
      continue;
    }
    auto received = receive_packet(config_.socket, buffer_);
    // Nobody holds the other end: leaving ends everything in the sandbox.
    if (!received || received->kind == Received::Kind::closed) ::_exit(0);
    auto frame = parse_frame(received->bytes);
    if (!frame) ::_exit(1);
    handle(*frame, std::move(received->fds));
  }
}

namespace {

// Leaves three descriptors of the sandbox's own, then the socket, the inner namespace, what the
// gate refuses, our own counts and those of what is written, in this order; closes the rest.
void keep_few_descriptors(GuestConfig& config, LaunchOutcome& outcome) {
  std::array<int*, 6 + kMaxLayers> kept{};
  std::size_t count = 0;
  auto keep = [&](int& fd) {
    if (fd >= 0) kept[count++] = &fd;
  };
  keep(config.socket);
  keep(config.inner_userns);
  keep(config.refusals);
  keep(config.own_io);
  keep(outcome.scratch);
  keep(outcome.disk);
  for (int& lower : outcome.lowers) keep(lower);
  auto end = 3 + static_cast<int>(count);
  for (std::size_t i = 0; i < count; ++i) {
    *kept[i] = ::fcntl(*kept[i], F_DUPFD_CLOEXEC, end);
    if (*kept[i] < 0) ::_exit(1);
  }
  for (std::size_t i = 0; i < count; ++i) {
    *kept[i] = ::dup3(*kept[i], 3 + static_cast<int>(i), O_CLOEXEC);
    if (*kept[i] < 0) ::_exit(1);
  }
  ::syscall(SYS_close_range, end, ~0U, 0);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) null = ::open("/", O_PATH | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd)
    if (::dup2(null, fd) < 0) ::_exit(1);
  ::close(null);
}

}  // namespace

void run_guest(GuestConfig config, const LaunchPlan& plan, LaunchOutcome outcome) {
  keep_few_descriptors(config, outcome);
  config.scratch = scratch_of(plan, outcome);
  ::prctl(PR_SET_NAME, "sandbox-init", 0, 0, 0);
  Egress egress;
  if (config.proxy_port != 0) {
    auto listening = Egress::listen(config.proxy_port);
    if (!listening) {
      wire::LaunchFailed failed;
      failed.step = static_cast<std::uint32_t>(LaunchStep::loopback);
      failed.err = errno;
      (void)send_message(config.socket, 0, failed);
      ::_exit(1);
    }
    egress = *std::move(listening);
  }
  wire::Hello hello;
  hello.step_micros.assign(outcome.step_micros.begin(), outcome.step_micros.end());
  hello.idmapped = outcome.idmapped;
  hello.landlock_abi = plan.landlock_abi;
  if (!send_message(config.socket, 0, hello)) ::_exit(1);
  Guest guest(config, std::move(egress));
  guest.serve();
}

}  // namespace asr
