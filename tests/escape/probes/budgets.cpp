// R09-R11, R20: what the kernel counts per user or for the whole machine. HOLD-* take all they can
// get and keep it; NEED is what a neighbour is asked meanwhile.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

constexpr long kMiB = 1L << 20;

// Argument: descriptors one process must hold.
void r09_descriptors(Probe& probe) {
  long wanted = probe.number(0, 5000);
  probe.attempt(
      "raise RLIMIT_NOFILE above its hard limit, or hold " + std::to_string(wanted) +
          " descriptors",
      [&] {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        rlimit more{static_cast<rlim_t>(wanted) + 64,
                    std::max<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wanted) + 64)};
        (void)::setrlimit(RLIMIT_NOFILE, &more);
        more = {limit.rlim_max, limit.rlim_max};
        (void)::setrlimit(RLIMIT_NOFILE, &more);
        long held = 0;
        while (held < wanted && ::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) ++held;
        return Outcome{held >= wanted, held >= wanted ? 0 : errno, std::to_string(held) + " held"};
      });
  probe.attempt(std::to_string(wanted * 2) + " descriptors in flight", [&] {
    rlimit low{256, 256};  // What may be in flight follows the limit of the sender.
    (void)::setrlimit(RLIMIT_NOFILE, &low);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0) return from(-1);
    constexpr int kAtOnce = 250;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kAtOnce)] = {};
    char byte = 0;
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * kAtOnce);
    for (int i = 0; i < kAtOnce; ++i)
      ::memcpy(CMSG_DATA(header) + i * sizeof(int), &pair[0], sizeof(int));
    long flying = 0;
    while (flying < wanted * 2) {
      if (::sendmsg(pair[1], &message, MSG_DONTWAIT) < 0) {
        if (errno != EAGAIN) break;
        if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) != 0)
          break;  // That queue is full.
        continue;
      }
      flying += kAtOnce;
    }
    return Outcome{flying >= wanted * 2, errno, std::to_string(flying) + " in flight"};
  });
}

// Outside, one user takes what another process of the same user needs. Inside, the test asks a
// neighbour and the host.
Outcome starves(const std::function<long()>& hog, const std::function<bool()>& need) {
  if (::setresgid(64999, 64999, 64999) != 0 || ::setresuid(64999, 64999, 64999) != 0)
    return from(-1, "setresuid");
  int ready[2];
  if (::pipe(ready) != 0) return from(-1);
  pid_t child = ::fork();
  if (child == 0) {
    char byte = 'h';
    long taken = hog();
    (void)!::write(ready[1], &byte, 1);
    (void)taken;
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  (void)!::read(ready[0], &byte, 1);
  bool served = need();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return when(!served, served ? "the other was served" : "the other was starved");
}

long take_inotify(long most) {
  long taken = 0;
  while (taken < most && ::inotify_init1(IN_CLOEXEC) >= 0) ++taken;
  return taken;
}

long take_pipes(long most) {
  long taken = 0;
  int ends[2];
  while (taken < most && ::pipe2(ends, O_CLOEXEC) == 0) ++taken;
  return taken;
}

long take_timers(long most) {
  long taken = 0;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMIN;
  timer_t timer{};
  while (taken < most && ::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) ++taken;
  return taken;
}

// The kernel has one budget of these for the whole machine (fs.aio-max-nr), and no namespace for
// it.
long take_aio(long most) {
  long taken = 0;
  for (long events : {4096L, 128L, 1L})
    for (unsigned long context = 0; taken < most && ::syscall(SYS_io_setup, events, &context) == 0;
         context = 0)
      taken += events;
  return taken;
}

void more_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Fills the buffers of connections to itself and never reads. MiB that went in.
long fill_connections(long connections) {
  more_files();
  int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(server, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(server, 4096) != 0)
    return -1;
  (void)::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  std::string block(1 << 16, 't');
  long bytes = 0;
  for (long i = 0; i < connections; ++i) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) break;
    ssize_t sent = 0;
    int idle = 0;
    while (idle < 3) {
      sent = ::send(fd, block.data(), block.size(), MSG_DONTWAIT);
      if (sent > 0)
        bytes += sent, idle = 0;
      else
        ++idle, ::usleep(200);
    }
  }
  return bytes / kMiB;
}

// So of terminals (kernel.pty.max), unless the instance of devpts has a limit of its own.
long take_terminals(long most) {
  long taken = 0;
  while (taken < most && ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0) ++taken;
  return taken;
}

bool pipe_is_full_size() {
  int ends[2];
  return ::pipe2(ends, O_CLOEXEC) == 0 && ::fcntl(ends[0], F_GETPIPE_SZ) == 65536;
}

void r10_inotify(Probe& probe) {
  if (probe.outside())
    probe.attempt("take every inotify instance of a shared user", [] {
      return starves([] { return take_inotify(100'000); }, [] { return take_inotify(1) == 1; });
    });
  probe.attempt("fanotify_init", [] {
    return from(::syscall(SYS_fanotify_init, FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY));
  });
}

void r11_pipes(Probe& probe) {
  rlimit files{8192, 8192};
  (void)::setrlimit(RLIMIT_NOFILE, &files);
  if (probe.outside())
    probe.attempt("shrink the pipes of a shared user",
                  [] { return starves([] { return take_pipes(1100); }, pipe_is_full_size); });
  probe.attempt("a pipe of 2 MiB", Unprovable{"needs CAP_SYS_RESOURCE outside"}, [] {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return from(-1);
    return from(::fcntl(ends[0], F_SETPIPE_SZ, 2 << 20));
  });
}

void r20_signals(Probe& probe) {
  probe.attempt("1,000 terminals", [] {
    more_files();
    long taken = take_terminals(1000);
    return Outcome{taken >= 1000, errno, std::to_string(taken)};
  });
  probe.attempt("1,000 of the machine's asynchronous requests", [] {
    long taken = take_aio(1000);
    return Outcome{taken >= 1000, errno, std::to_string(taken)};
  });
  probe.attempt("20,000 timers", [] {
    long taken = take_timers(20'000);
    return Outcome{taken == 20'000, errno, std::to_string(taken) + " timers"};
  });
  probe.attempt("20,000 queued signals", [] {
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGRTMIN);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    long queued = 0;
    while (queued < 20'000 && ::sigqueue(::getpid(), SIGRTMIN, {}) == 0) ++queued;
    return Outcome{queued == 20'000, errno, std::to_string(queued) + " queued"};
  });
}

void hold(const char* what, long taken) {
  std::printf("holding %ld %s\n", taken, what);
  std::fflush(stdout);
  for (;;) ::pause();
}

void hold_inotify(Probe&) { hold("inotify instances", take_inotify(100'000)); }
void hold_pipes(Probe&) {
  more_files();
  hold("pipes", take_pipes(1100));
}
void hold_timers(Probe&) { hold("timers", take_timers(100'000)); }
void hold_files(Probe&) {
  more_files();
  long taken = 0;
  for (int i = 0; i < 8; ++i)
    if (::fork() == 0) break;
  while (::open("/dev/null", O_RDONLY) >= 0) ++taken;
  hold("descriptors", taken);
}
void hold_aio(Probe&) { hold("asynchronous requests", take_aio(10'000'000)); }
void hold_terminals(Probe&) {
  more_files();
  hold("terminals", take_terminals(10'000));
}
void hold_connections(Probe& probe) {
  hold("MiB in connections", fill_connections(probe.number(0, 400)));
}
void hold_sleep(Probe&) { hold("nothing", 0); }

void need_all(Probe& probe) {
  probe.needed("one inotify instance", [] { return from(::inotify_init1(IN_CLOEXEC)); });
  probe.needed("a pipe of 64 KiB", [] { return when(pipe_is_full_size()); });
  probe.needed("one timer", [] { return when(take_timers(1) == 1); });
  probe.needed("one terminal", [] { return when(take_terminals(1) == 1); });
  probe.needed("one descriptor", [] { return from(::open("/dev/null", O_RDONLY | O_CLOEXEC)); });
  probe.needed("one process", [] {
    pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return from(child);
  });
}

}  // namespace

std::span<const Case> budget_cases() {
  static constexpr Case cases[] = {
      {"R09", r09_descriptors, {}},
      {"R10", r10_inotify, {}},
      {"R11", r11_pipes, {.memory_mib = 256}},
      {"R20", r20_signals, {}},
      {"HOLD-inotify", hold_inotify, {}},
      {"HOLD-pipes", hold_pipes, {}},
      {"HOLD-timers", hold_timers, {}},
      {"HOLD-files", hold_files, {}},
      {"HOLD-aio", hold_aio, {}},
      {"HOLD-terminals", hold_terminals, {}},
      {"HOLD-connections", hold_connections, {}},
      {"HOLD-sleep", hold_sleep, {}},
      {"NEED", need_all, {}},
  };
  return cases;
}

}  // namespace probes
