// E19, E20, R13: terminals. Inside, the test gives the probe a terminal as descriptor 0; outside it
// makes its own.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

// A new terminal as descriptor 0, with or without becoming this session's own.
bool take_terminal() {
  int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return false;
  ::setsid();
  int slave = ::open(::ptsname(master), O_RDWR);
  return slave >= 0 && ::dup2(slave, 0) == 0 && ::ioctl(0, TIOCSCTTY, 0) == 0;
}

void e19_injection(Probe& probe) {
  static char letter = 'Z';
  static int discipline = 0;
  static char selection[] = {6, 0};
  struct Request {
    const char* name;
    unsigned long number;
    void* argument;
    const char* unprovable;
  };
  const Request requests[] = {
      {"TIOCSTI", TIOCSTI, &letter, ""},
      {"TIOCSTI with bits above the 32nd", 0x100000000UL | TIOCSTI, &letter, ""},
      {"TIOCSTI with all bits above the 32nd", 0xffffffff00000000UL | TIOCSTI, &letter, ""},
      {"TIOCSETD", TIOCSETD, &discipline, ""},
      {"TIOCSETD with bits above the 32nd", 0x100000000UL | TIOCSETD, &discipline, ""},
      {"TIOCVHANGUP", 0x5437, nullptr, ""},
      {"TIOCLINUX", TIOCLINUX, selection, "only a virtual console has it"},
      {"TIOCCONS", TIOCCONS, nullptr, "never tried outside: it takes the machine's console"},
  };
  for (const Request& request : requests)
    probe.attempt(std::string("ioctl ") + request.name, Unprovable{request.unprovable}, [&] {
      if (probe.outside() && request.number == TIOCCONS) return when(false, "not tried outside");
      if (probe.outside() && !take_terminal()) return from(-1, "terminal");
      ::signal(SIGHUP, SIG_IGN);
      return from(::syscall(SYS_ioctl, 0, request.number, request.argument));
    });
  probe.attempt("steal the terminal for another session", [&] {
    if (probe.outside() && !take_terminal()) return from(-1, "terminal");
    int ends[2];
    if (::pipe(ends) != 0) return from(-1);
    if (::fork() == 0) {
      ::signal(SIGHUP, SIG_IGN);
      ::setsid();
      int result[2] = {::ioctl(0, TIOCSCTTY, 1), errno};
      (void)!::write(ends[1], result, sizeof(result));
      ::_exit(0);
    }
    ::signal(SIGHUP, SIG_IGN);
    int result[2] = {-1, 0};
    (void)!::read(ends[0], result, sizeof(result));
    return Outcome{result[0] == 0, result[0] == 0 ? 0 : result[1], ""};
  });
}

void e20_other_terminals(Probe& probe) {
  if (probe.outside()) (void)::posix_openpt(O_RDWR | O_NOCTTY);
  probe.attempt("see a terminal of somebody else in /dev/pts", [] {
    std::string found;
    for (const std::string& name : entries("/dev/pts"))
      if (name != "ptmx") found += name + " ";
    return when(!found.empty(), found);
  });
  probe.attempt("open /dev/tty", [&] {
    if (probe.outside() && !take_terminal()) return from(-1, "terminal");
    return from(::open("/dev/tty", O_RDWR | O_CLOEXEC));
  });
  for (const char* path : {"/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0"}) {
    bool opens =
        probe.outside() && ::close(::open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)) == 0;
    probe.attempt(
        std::string("open ") + path,
        Unprovable{opens || !probe.outside() ? ""
                                             : std::string("this machine cannot open ") + path},
        [&] { return from(::open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)); });
  }
  probe.attempt("a controlling terminal it was not given", Unprovable{"the box has none"}, [] {
    std::string stat = read_all("/proc/self/stat");
    int tty = 0;
    (void)std::sscanf(stat.c_str() + stat.rfind(')') + 2, "%*c %*d %*d %*d %d", &tty);
    return when(tty != 0);
  });
  probe.needed("make a terminal of its own", [] { return when(take_terminal()); });
}

// Argument: repetitions. Every byte there is, one write each, in raw mode.
void r13_verbatim(Probe& probe) {
  termios raw{};
  ::tcgetattr(0, &raw);
  ::cfmakeraw(&raw);
  ::tcsetattr(0, TCSANOW, &raw);
  for (long i = 0; i < probe.number(0, 16); ++i)
    for (int byte = 0; byte < 256; ++byte) {
      char c = static_cast<char>(byte);
      (void)!::write(1, &c, 1);
    }
}

}  // namespace

std::span<const Case> terminal_cases() {
  static constexpr Case cases[] = {
      {"E19", e19_injection, {}},
      {"E20", e20_other_terminals, {}},
      {"R13-verbatim", r13_verbatim, {}},
  };
  return cases;
}

}  // namespace probes
