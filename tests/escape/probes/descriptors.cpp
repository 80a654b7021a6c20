// E12-E14, E29, E37: what a program is born with: descriptors, working directory, executable,
// environment.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

extern "C" char** environ;

namespace probes {

namespace {

// Every open number above the standard three, found by asking and not by looking at /proc.
std::vector<int> inherited() {
  std::vector<int> found;
  for (int fd = 3; fd < 65536; ++fd)
    if (::fcntl(fd, F_GETFD) >= 0) found.push_back(fd);
  return found;
}

// Arguments: the path of a file that only the host has, and what is in it.
void e12_leaked(Probe& probe) {
  std::string path = probe.arg(0, "/etc/hostname");
  std::string secret = probe.arg(1);
  if (probe.outside()) {  // What a careless parent would have left open.
    std::string directory = path.substr(0, path.rfind('/'));
    (void)::open(directory.c_str(), O_DIRECTORY | O_RDONLY);
  }
  std::vector<int> found = inherited();
  std::string names;
  for (int fd : found)
    names += std::to_string(fd) + "=" + link_of("/proc/self/fd/" + std::to_string(fd)) + " ";
  probe.report("descriptors other than 0, 1 and 2", when(!found.empty(), names));
  probe.attempt("read a file of the host through one of them", [&] {
    if (probe.outside() && ::chroot(probe.scratch().c_str()) != 0) return from(-1, "chroot");
    for (int fd : found) {
      int leaked = ::openat(fd, path.substr(path.rfind('/') + 1).c_str(), O_RDONLY | O_CLOEXEC);
      char text[256] = {};
      if (leaked >= 0 && ::read(leaked, text, sizeof(text) - 1) > 0 &&
          ::strstr(text, secret.c_str()) != nullptr)
        return when(true);
    }
    return when(false);
  });
  for (int fd = 0; fd < 3; ++fd)
    probe.attempt(
        "a directory or the host's terminal as descriptor " + std::to_string(fd),
        Unprovable{"outside it is what the test gave it"}, [&] {
          struct stat info {};
          if (::fstat(fd, &info) != 0) return from(-1);
          std::string link = link_of("/proc/self/fd/" + std::to_string(fd));
          return when(
              S_ISDIR(info.st_mode) || S_ISBLK(info.st_mode) || link.starts_with("/dev/tty"), link);
        });
}

// Arguments: the path of a file that only the host has, and what is in it. The test chooses the
// working directory.
void e13_directory(Probe& probe) {
  std::string path = probe.arg(0, "/etc/hostname");
  std::string secret = probe.arg(1);
  probe.attempt("reach the host from the working directory", [&] {
    if (probe.outside() && (::chdir("/") != 0 || ::chroot(probe.scratch().c_str()) != 0))
      return from(-1, "chroot");
    std::string up = ".";
    for (int i = 0; i < 32; ++i, up += "/..") {
      std::string text = read_all(up + path);
      if (!text.empty() && text.find(secret) != std::string::npos) return when(true, up);
    }
    return when(false);
  });
  probe.attempt("a working directory that has no name", [&] {
    if (probe.outside() && (::chdir("/") != 0 || ::chroot(probe.scratch().c_str()) != 0))
      return from(-1, "chroot");
    char where[4096] = {};
    char* got = ::getcwd(where, sizeof(where));
    return when(got == nullptr || where[0] != '/', where);
  });
}

// Swaps a directory and a symlink until it is killed. Arguments: directory to swap in, target of
// the link.
void e13_swapper(Probe& probe) {
  std::string a = probe.arg(0) + "/swap", b = probe.arg(0) + "/other";
  ::mkdir(a.c_str(), 0777);
  ::chmod(a.c_str(), 0777);
  (void)::symlink(probe.arg(1).c_str(), b.c_str());
  std::puts("swapping");
  std::fflush(stdout);
  for (;;) (void)::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

// The pattern of CVE-2019-5736: hold the executable of another process, write to it once that has
// ended.
Outcome overwrite_executable(const std::string& own) {
  if (!copy_self(own, 0755)) return from(-1, "copy");
  pid_t victim = ::fork();
  if (victim == 0) {
    ::execl(own.c_str(), own.c_str(), "HOLD-sleep", nullptr);
    ::_exit(127);
  }
  ::usleep(50'000);
  int held = ::open(("/proc/" + std::to_string(victim) + "/exe").c_str(), O_RDONLY | O_CLOEXEC);
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
  if (held < 0) return from(-1, "open");
  int writable =
      ::open(("/proc/self/fd/" + std::to_string(held)).c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  return from(writable);
}

void e14_executable(Probe& probe) {
  for (auto [flags, name] : {std::pair{O_RDONLY, "reading"}, {O_PATH, "a path"}})
    probe.attempt(std::string("open /proc/1/exe for ") + name,
                  [f = flags] { return from(::open("/proc/1/exe", f | O_CLOEXEC)); });
  probe.attempt("open /proc/1/exe for writing", Unprovable{"text is busy while it runs"},
                [] { return from(::open("/proc/1/exe", O_WRONLY | O_CLOEXEC)); });
  if (probe.outside())
    probe.attempt("write to the executable of a process of another user",
                  [&] { return overwrite_executable(probe.scratch() + "/escape_probes_victim"); });
  probe.attempt("execute the executable of pid 1", [] {
    int fd = ::open("/proc/1/exe", O_PATH | O_CLOEXEC);
    if (fd < 0) return from(-1, "open");
    pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
      ::execl("/proc/1/exe", "x", "list", nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return when(WIFEXITED(status) && WEXITSTATUS(status) != 127);
  });
  probe.attempt("write to /proc/self/exe", Unprovable{"text is busy while it runs"},
                [] { return from(::open("/proc/self/exe", O_WRONLY | O_CLOEXEC)); });
}

// A script that names /proc/self/exe as its interpreter runs what pid 1 is made of, as an ordinary
// process. Whatever it is, it must not be possible to write to it, while it runs or after.
void e14_hunt(Probe& probe) {
  std::string found;
  int held = -1;
  for (int pid : process_ids()) {
    std::string exe = "/proc/" + std::to_string(pid) + "/exe";
    struct stat running {
    }, named{};
    if (::stat(exe.c_str(), &running) != 0) continue;
    std::string path = link_of(exe);
    if (::stat(path.c_str(), &named) == 0 && named.st_ino == running.st_ino) continue;
    found += path + " ";
    held = ::open(exe.c_str(), O_RDONLY | O_CLOEXEC);
    probe.attempt("open " + path + " for writing", Unprovable{"there is no such program outside"},
                  [&] { return from(::open(exe.c_str(), O_WRONLY | O_CLOEXEC)); });
    (void)::kill(pid, SIGKILL);
  }
  probe.report_note("programs that no path leads to", when(!found.empty(), found));
  if (held < 0) return;
  ::usleep(100'000);
  std::string again = "/proc/self/fd/" + std::to_string(held);
  probe.attempt("write to it after it has ended", Unprovable{"there is no such program outside"},
                [&] {
                  int fd = ::open(again.c_str(), O_RDWR | O_CLOEXEC);
                  if (fd < 0) return from(-1, "open");
                  char byte = 0;
                  if (::pread(fd, &byte, 1, 0) != 1) return from(-1, "read");
                  return from(::pwrite(fd, &byte, 1, 0));  // The byte that is there.
                });
  probe.attempt("truncate it", Unprovable{"there is no such program outside"},
                [&] { return from(::truncate(again.c_str(), 1 << 30)); });
}

// A way to the daemon: any socket that was not made here.
void e29_control(Probe& probe) {
  if (probe.outside()) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return;
  }
  std::string found;
  for (int fd : inherited()) {
    struct stat info {};
    if (::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) found += std::to_string(fd) + " ";
  }
  probe.report("an inherited socket to send messages or descriptors over",
               when(!found.empty(), found));
  probe.attempt("a socket of pid 1", [] {
    if (entries("/proc/1/fd").empty()) return from(-1, "list /proc/1/fd");
    return when(true);
  });
  probe.attempt(
      "a unix socket in the socket table", Unprovable{"the box has a network of its own"}, [] {
        std::string table = read_all("/proc/net/unix");
        std::size_t header = table.find('\n');
        return when(header != std::string::npos && table.size() > header + 1, table.substr(0, 300));
      });
}

void e37_environment(Probe& probe) {
  for (char** entry = environ; *entry != nullptr; ++entry)
    probe.report_note("env", when(true, *entry));
  probe.attempt("read the environment of pid 1",
                [] { return when(!read_all("/proc/1/environ").empty()); });
  probe.attempt("AT_SECURE or a loader's influence on pid 1",
                Unprovable{"it is the same attempt as the one above"},
                [] { return when(read_all("/proc/1/maps").find(".so") != std::string::npos); });
}

}  // namespace

std::span<const Case> descriptor_cases() {
  static constexpr Case cases[] = {
      {"E12", e12_leaked, {}},      {"E13", e13_directory, {}}, {"E13-swap", e13_swapper, {}},
      {"E14", e14_executable, {}},  {"E14-hunt", e14_hunt, {}}, {"E29", e29_control, {}},
      {"E37", e37_environment, {}},
  };
  return cases;
}

}  // namespace probes
