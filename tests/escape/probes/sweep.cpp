// Calls every system call number with arguments that no call can use, each in a child of its own,
// and says what came back. Only for the inside of a sandbox: as root of a machine some of these
// would do what they are asked.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

#if defined(__x86_64__)

constexpr unsigned long kBad = ~0UL;  // No descriptor, no pointer, no size.

long call64(long number) {
  long result;
  register unsigned long r10 __asm__("r10") = kBad;
  register unsigned long r8 __asm__("r8") = kBad;
  register unsigned long r9 __asm__("r9") = kBad;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(kBad), "S"(kBad), "d"(kBad), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

long call32(long number) {
  long result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number), "b"(kBad), "c"(kBad), "d"(kBad), "S"(kBad), "D"(kBad)
                   : "memory", "r8", "r9", "r10", "r11");
  return static_cast<int>(result);
}

// Calls that end the caller, or come back twice or to nowhere. They are allowed in every tier: no
// program can do without them, vfork() aside, which posix_spawn() needs.
bool not_called(long number) {
  for (long skipped : {SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_vfork})
    if (number == skipped) return true;
  return false;
}

// "reachable", a refusal, or how the child ended.
std::string verdict(long number, long (*call)(long)) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  pid_t child = ::fork();
  if (child == 0) {
    pid_t self = ::getpid();
    ::signal(SIGALRM, SIG_DFL);
    ::alarm(1);
    long result = call(number);
    if (::getpid() != self) ::_exit(0);  // fork() came back here too.
    (void)!::write(ends[1], &result, sizeof(result));
    ::_exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0) return "no child";
  ::close(ends[1]);
  long result = 0;
  bool answered = ::read(ends[0], &result, sizeof(result)) == sizeof(result);
  ::close(ends[0]);
  if (answered) {
    if (result == -EPERM) return "EPERM";
    if (result == -ENOSYS) return "ENOSYS";
    return "reachable";
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return "SIGSYS";
  return "reachable";  // It waited, or crashed over its arguments: either way it ran.
}

#endif

}  // namespace

int sweep(std::string_view which) {
#if defined(__x86_64__)
  std::string status = read_all("/proc/self/status");
  if (status.find("\nSeccomp:\t2\n") == std::string::npos) {
    std::fputs("escape_probes: the sweep runs only behind a filter\n", stderr);
    return 2;
  }
  long last = which == "i386" ? 460 : 480;
  for (long number = 0; number <= last; ++number) {
    if (which == "native" && not_called(number)) {
      std::printf("%ld not-called\n", number);
      continue;
    }
    std::string result = which == "i386"  ? verdict(number, call32)
                         : which == "x32" ? verdict(number | 0x40000000L, call64)
                                          : verdict(number, call64);
    std::printf("%ld %s\n", number, result.c_str());
  }
  std::puts("end");
  return 0;
#else
  (void)which;
  std::fputs("escape_probes: the sweep is written for x86-64\n", stderr);
  return 2;
#endif
}

}  // namespace probes
