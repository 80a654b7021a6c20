// tool COMMAND [argument…]: what tests make a program do inside a sandbox, with nothing but the
// kernel below it.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace {

long number(const char* text) { return ::strtol(text, nullptr, 10); }

void say(const char* text) {
  ::printf("%s\n", text);
  ::fflush(stdout);
}

int report(const char* what, long count) {
  ::printf("%s %ld errno %d %s\n", what, count, errno, ::strerror(errno));
  return 0;
}

[[noreturn]] void sleep_on() {
  for (;;) ::pause();
}

// eat MIB: touches that much memory, tells, and holds it.
int eat(char** arguments) {
  long mib = number(arguments[0]);
  for (long i = 0; i < mib; ++i) {
    void* block =
        ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return report("ate", i);
    ::memset(block, 1, 1 << 20);
  }
  say("ate");
  sleep_on();
}

// burn MILLIS: uses that much cpu time; 0 is for ever.
int burn(char** arguments) {
  long millis = number(arguments[0]);
  for (volatile unsigned long work = 0;;) {
    for (int i = 0; i < 100000; ++i) work = work + 1;
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    if (millis > 0 && used.tv_sec * 1000 + used.tv_nsec / 1000000 >= millis) return 0;
  }
}

// burners COUNT MILLIS: one child after the other, each using that much cpu time; 0 children is for
// ever.
int burners(char** arguments) {
  long count = number(arguments[0]);
  for (long i = 0; count == 0 || i < count; ++i) {
    int pid = ::fork();
    if (pid == 0) ::_exit(burn(arguments + 1));
    if (pid < 0 || ::waitpid(pid, nullptr, 0) < 0) return report("burned", i);
  }
  return 0;
}

// forks: children that wait, until no more can be had; tells how many, and keeps them.
int forks(char**) {
  long count = 0;
  int pid = 0;
  while ((pid = ::fork()) > 0) ++count;
  if (pid == 0) sleep_on();
  report("forked", count);
  ::fflush(stdout);
  sleep_on();
}

// bomb: every process forks for ever.
int bomb(char**) {
  say("armed");
  for (;;)
    if (::fork() < 0) ::usleep(1000);
}

// files: opens until no more can be opened.
int files(char**) {
  long count = 0;
  while (::open("/dev/null", O_RDONLY) >= 0) ++count;
  return report("opened", count);
}

// fill PATH: writes until nothing more fits. In MiB.
int fill(char** arguments) {
  ::signal(SIGXFSZ, SIG_IGN);
  static char block[1 << 20];
  ::memset(block, 7, sizeof block);
  int fd = ::open(arguments[0], O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return report("opened", -1);
  long bytes = 0;
  ssize_t n = 0;
  while ((n = ::write(fd, block, sizeof block)) > 0) bytes += n;
  return report("filled", bytes >> 20);
}

// inodes DIR: creates empty files until there are no more to be had.
int inodes(char** arguments) {
  if (::chdir(arguments[0]) != 0) return report("chdir", -1);
  for (long count = 0;; ++count) {
    char name[32];
    ::snprintf(name, sizeof name, "f%ld", count);
    int fd = ::open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) return report("created", count);
    ::close(fd);
  }
}

// touch DIR COUNT: that many empty files.
int touch(char** arguments) {
  if (::chdir(arguments[0]) != 0) return report("chdir", -1);
  for (long count = 0; count < number(arguments[1]); ++count) {
    char name[32];
    ::snprintf(name, sizeof name, "file-%06ld", count);
    int fd = ::open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) {
      report("touched", count);
      return 1;
    }
    ::close(fd);
  }
  return 0;
}

// deep DIR LEVELS: directories in each other, deeper than any path is long.
int deep(char** arguments) {
  if (::chdir(arguments[0]) != 0) return 1;
  for (long level = 0; level < number(arguments[1]); ++level)
    if (::mkdir("d", 0755) != 0 || ::chdir("d") != 0) return report("level", level), 1;
  return 0;
}

// tick PATH: counts in a file, as fast as it can.
int tick(char** arguments) {
  int fd = ::open(arguments[0], O_WRONLY | O_CREAT, 0644);
  for (unsigned long count = 1;; ++count) {
    char text[32];
    int size = ::snprintf(text, sizeof text, "%020lu", count);
    if (::pwrite(fd, text, static_cast<size_t>(size), 0) != size) return 1;
    if (count == 1) say("ticking");
  }
}

// flood: a byte pattern on stdout, for ever.
int flood(char**) {
  static char block[65536];
  ::memset(block, 'y', sizeof block);
  while (::write(1, block, sizeof block) > 0) {
  }
  return 0;
}

void tell_size(int) {
  winsize size{};
  ::ioctl(0, TIOCGWINSZ, &size);
  ::dprintf(1, "size %d %d\n", size.ws_row, size.ws_col);
}
void tell_interrupt(int) { ::dprintf(1, "interrupted\n"); }

// terminal: tells its size, again at each SIGWINCH, and interrupts; until something is typed that
// begins with q.
int terminal(char**) {
  ::dprintf(1, "isatty %d %d %d\n", ::isatty(0), ::isatty(1), ::isatty(2));
  struct sigaction action {};
  action.sa_handler = tell_size;
  ::sigaction(SIGWINCH, &action, nullptr);
  action.sa_handler = tell_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  tell_size(0);
  for (;;) {
    char line[256];
    ssize_t n = ::read(0, line, sizeof line);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || line[0] == 'q') return n < 0 ? 1 : 0;
    ::dprintf(1, "typed %.*s", static_cast<int>(n), line);
  }
}

// tree: a child and a grandchild in a session of its own, all waiting; tells when they are there.
int tree(char**) {
  int ready[2];
  if (::pipe(ready) != 0) return 1;
  if (::fork() == 0) {
    if (::fork() == 0) {
      ::setsid();
      ::dprintf(ready[1], "x");
    }
    sleep_on();
  }
  char byte = 0;
  if (::read(ready[0], &byte, 1) != 1) return 1;
  say("grown");
  sleep_on();
}

sockaddr_in loopback(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(number(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// serve PORT: an echo server on 127.0.0.1; "serve6 PORT" on [::1] only, "serve_all PORT" on every
// address.
int serve(char** arguments, int family, in_addr_t where = htonl(INADDR_LOOPBACK)) {
  int listener = ::socket(family, SOCK_STREAM, 0);
  int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in v4 = loopback(arguments[0]);
  v4.sin_addr.s_addr = where;
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  v6.sin6_addr = in6addr_loopback;
  const void* address = family == AF_INET ? static_cast<void*>(&v4) : static_cast<void*>(&v6);
  socklen_t size = family == AF_INET ? sizeof v4 : sizeof v6;
  if (::bind(listener, static_cast<const sockaddr*>(address), size) != 0 ||
      ::listen(listener, 64) != 0) {
    report("listening", -1);
    return 1;
  }
  say("listening");
  for (;;) {
    int peer = ::accept(listener, nullptr, nullptr);
    if (peer < 0) return 1;
    if (::fork() == 0) {
      char block[65536];
      ssize_t n = 0;
      while ((n = ::read(peer, block, sizeof block)) > 0)
        for (ssize_t at = 0, sent = 0; at < n; at += sent) {
          sent = ::write(peer, block + at, static_cast<size_t>(n - at));
          if (sent < 0) ::_exit(1);
        }
      ::_exit(0);
    }
    ::close(peer);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

// dial PORT: connects to 127.0.0.1.
int dial(char** arguments) {
  int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = loopback(arguments[0]);
  if (socket >= 0 && ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    errno = 0;
  return report("dialled", errno == 0 ? 1 : 0);
}

// reach tcp|udp ADDRESS PORT [SOURCE]: what a server there says.
int reach(char** arguments) {
  bool tcp = ::strcmp(arguments[0], "tcp") == 0;
  int socket = ::socket(AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
  timeval patience{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  if (arguments[3] != nullptr) {
    own.sin_addr.s_addr = ::inet_addr(arguments[3]);
    if (::bind(socket, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0)
      return report("bound", -1);
  }
  sockaddr_in address = loopback(arguments[2]);
  address.sin_addr.s_addr = ::inet_addr(arguments[1]);
  char text[256];
  ssize_t n = -1;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::send(socket, "?", 1, MSG_NOSIGNAL) == 1)
    n = ::recv(socket, text, sizeof text, 0);
  if (n <= 0) return report("unreached", 0);
  ::printf("reached %.*s\n", static_cast<int>(n), text);
  return 0;
}

// socket PATH: a listening unix socket at a path, for as long as it lives.
int unix_socket(char** arguments) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ::strncpy(address.sun_path, arguments[0], sizeof address.sun_path - 1);
  int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket, 1) != 0)
    return report("bound", -1), 1;
  say("bound");
  sleep_on();
}

// forbidden: a system call of a foreign ABI, which no program here makes.
int forbidden(char**) {
#ifdef __x86_64__
  ::syscall(0x4000'0000L | SYS_getpid);
#endif
  return 0;
}

void tell_error(const char* what, long result) {
  ::printf("%s %d\n", what, result == -1 ? errno : 0);
}

// refused: calls that no sandbox may make, or that it is not to know, each with its error.
int refused(char**) {
  tell_error("mount", ::syscall(SYS_mount, 0, 8, 0, 0, 0));
  tell_error("mount", ::syscall(SYS_mount, 0, 8, 0, 0, 0));
  tell_error("setns", ::syscall(SYS_setns, -1, 0, 0, 0, 0, 0));
  tell_error("unshare", ::syscall(SYS_unshare, CLONE_NEWNS));
  tell_error("clone", ::syscall(SYS_clone, CLONE_NEWNS | CLONE_FS, 0, 0, 0, 0));
  tell_error("keyctl", ::syscall(SYS_keyctl, 999, 0, 0, 0, 0));
  tell_error("socket", ::socket(AF_VSOCK, SOCK_STREAM, 0));
  tell_error("socket", ::socket(AF_ALG, SOCK_SEQPACKET, 0));
  tell_error("socket", ::socket(AF_INET, SOCK_STREAM, 262));
  tell_error("socket", ::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
  tell_error("socketpair", ::syscall(SYS_socketpair, AF_VSOCK, SOCK_STREAM, 0, 8));
  tell_error("ioctl", ::syscall(SYS_ioctl, -1, TIOCSTI, 0));
  tell_error("mknodat", ::mknodat(AT_FDCWD, "device", S_IFCHR | 0600, 0x103));
  tell_error("personality", ::personality(READ_IMPLIES_EXEC));
  tell_error("prctl", ::prctl(PR_SET_MM, 0, 0, 0, 0));
  tell_error("absent", ::syscall(SYS_io_uring_setup, 1, 8));
  tell_error("absent", ::syscall(SYS_clone3, 8, 1));
  tell_error("absent", ::syscall(600));
#ifdef __x86_64__
  tell_error("absent", ::syscall(SYS_arch_prctl, 0x3001, 0));
#else
  ::printf("absent %d\n", EINVAL);
#endif
  tell_error("allowed", ::socket(AF_INET, SOCK_STREAM, 0));
  return 0;
}

// insist CHILDREN CALLS: so many children make so many calls each that are refused; 0 calls is for
// ever.
int insist(char** arguments) {
  long calls = number(arguments[1]);
  for (long child = 0; child < number(arguments[0]); ++child) {
    int pid = ::fork();
    if (pid < 0) return report("forked", child), 1;
    if (pid > 0) continue;
    for (long i = 0; calls == 0 || i < calls; ++i)
      if (::syscall(SYS_keyctl, 999, 0, 0, 0, 0) != -1 || errno != EPERM) ::_exit(1);
    ::_exit(0);
  }
  say("insisting");
  int failed = 0;
  for (int status = 0; ::wait(&status) > 0;)
    if (status != 0) failed = 1;
  return failed;
}

// cat PATH…: files to stdout.
int cat(char** arguments) {
  for (; *arguments != nullptr; ++arguments) {
    int fd = ::open(*arguments, O_RDONLY);
    if (fd < 0) {
      ::fprintf(stderr, "%s: %s\n", *arguments, ::strerror(errno));
      return 1;
    }
    char block[65536];
    ssize_t n = 0;
    while ((n = ::read(fd, block, sizeof block)) > 0)
      if (::write(1, block, static_cast<size_t>(n)) != n) return 1;
    ::close(fd);
  }
  return 0;
}

// type PATH…: d, f, l, c or ? for each, without following links.
int type(char** arguments) {
  for (; *arguments != nullptr; ++arguments) {
    struct stat info {};
    if (::lstat(*arguments, &info) != 0)
      ::printf("-");
    else if (S_ISDIR(info.st_mode))
      ::printf("d");
    else if (S_ISREG(info.st_mode))
      ::printf("f");
    else if (S_ISLNK(info.st_mode))
      ::printf("l");
    else if (S_ISCHR(info.st_mode))
      ::printf("c");
    else
      ::printf("?");
  }
  ::printf("\n");
  return 0;
}

int id(char**) {
  ::printf("%u %u\n", ::getuid(), ::getgid());
  return 0;
}

struct Command {
  const char* name;
  int arguments;
  int (*run)(char**);
};

constexpr Command kCommands[] = {
    {"eat", 1, eat},
    {"burn", 1, burn},
    {"burners", 2, burners},
    {"forks", 0, forks},
    {"bomb", 0, bomb},
    {"files", 0, files},
    {"fill", 1, fill},
    {"inodes", 1, inodes},
    {"touch", 2, touch},
    {"deep", 2, deep},
    {"tick", 1, tick},
    {"flood", 0, flood},
    {"tree", 0, tree},
    {"dial", 1, dial},
    {"reach", 3, reach},
    {"socket", 1, unix_socket},
    {"forbidden", 0, forbidden},
    {"refused", 0, refused},
    {"insist", 2, insist},
    {"cat", 1, cat},
    {"type", 1, type},
    {"id", 0, id},
    {"terminal", 0, terminal},
    {"serve", 1, [](char** a) { return serve(a, AF_INET); }},
    {"serve_all", 1, [](char** a) { return serve(a, AF_INET, INADDR_ANY); }},
    {"serve6", 1, [](char** a) { return serve(a, AF_INET6); }},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Command& command : kCommands)
    if (argc >= 2 && ::strcmp(argv[1], command.name) == 0 && argc - 2 >= command.arguments)
      return command.run(argv + 2);
  ::fprintf(stderr, "tool: unknown command\n");
  return 64;
}
