// E01-E04, E33, E34, E38: other processes, above all pid 1 and what it starts.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "probe.hpp"

namespace probes {

namespace {

int pidfd_of(int pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

void e01_signals(Probe& probe) {
  for (auto [number, name] : {std::pair{SIGKILL, "SIGKILL"},
                              {SIGSTOP, "SIGSTOP"},
                              {SIGTERM, "SIGTERM"},
                              {SIGSEGV, "SIGSEGV"},
                              {SIGHUP, "SIGHUP"},
                              {0, "nothing"}}) {
    std::string what = name;
    probe.attempt("kill(1, " + what + ")", [n = number] { return from(::kill(1, n)); });
  }
  probe.attempt("tgkill(1, 1, SIGTERM)", [] { return from(::syscall(SYS_tgkill, 1, 1, SIGTERM)); });
  probe.attempt("tkill(1, SIGTERM)", [] { return from(::syscall(SYS_tkill, 1, SIGTERM)); });
  probe.attempt("rt_sigqueueinfo(1, SIGTERM)", [] {
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    return from(::syscall(SYS_rt_sigqueueinfo, 1, SIGTERM, &info));
  });
  probe.attempt("pidfd_send_signal(1, SIGTERM)", [] {
    int fd = pidfd_of(1);
    if (fd < 0) return from(-1, "pidfd_open");
    return from(::syscall(SYS_pidfd_send_signal, fd, SIGTERM, nullptr, 0));
  });
  probe.note("have the kernel signal pid 1 for it (F_SETOWN)", [] {
    int ends[2];
    if (::pipe(ends) != 0 || ::fcntl(ends[0], F_SETSIG, SIGKILL) != 0 ||
        ::fcntl(ends[0], F_SETOWN, 1) != 0)
      return from(-1);
    (void)::fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK);
    return from(::write(ends[1], "x", 1));
  });
  probe.attempt("setpriority of pid 1", [] { return from(::syscall(SYS_setpriority, 0, 1, 5)); });
  probe.attempt("prlimit of pid 1", [] {
    struct {
      unsigned long now, most;
    } limit{8, 8};
    // Signals in a queue: a limit that the process in the box does not need.
    return from(::syscall(SYS_prlimit64, 1, 11 /* RLIMIT_SIGPENDING */, &limit, nullptr));
  });
  probe.attempt("sched_setaffinity of pid 1", [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    return from(::sched_setaffinity(1, sizeof(set), &set));
  });
}

// Everything this process may signal dies, but the process itself and pid 1.
void e02_kill_all(Probe& probe) {
  pid_t bystander = 0;
  if (probe.outside()) {
    bystander = ::fork();
    if (bystander == 0) {
      (void)::setresuid(64998, 64998, 64998);
      for (;;) ::pause();
    }
    ::usleep(20'000);
  }
  long result = ::kill(-1, SIGKILL);
  int err = errno;
  if (probe.outside()) {
    int status = 0;
    ::waitpid(bystander, &status, 0);
    probe.report("kill(-1) ends a process of another user", when(WIFSIGNALED(status)));
  } else {
    probe.report_note("kill(-1, SIGKILL)", {result == 0, err, ""});
  }
}

unsigned long first_mapping(int pid) {
  std::string maps = read_all("/proc/" + std::to_string(pid) + "/maps");
  return maps.empty() ? 0x400000UL : std::strtoul(maps.c_str(), nullptr, 16);
}

Outcome vm(long call, int pid) {
  char here[16] = {};
  iovec local{here, sizeof(here)};
  iovec remote{reinterpret_cast<void*>(first_mapping(pid)), sizeof(here)};
  if (call ==
      SYS_process_vm_writev) {  // Into the stack: read-only text would fail for another reason.
    std::string maps = read_all("/proc/" + std::to_string(pid) + "/maps");
    std::size_t stack = maps.find("[stack]");
    std::size_t line = stack == std::string::npos ? stack : maps.rfind('\n', stack);
    if (line != std::string::npos)
      remote.iov_base = reinterpret_cast<void*>(std::strtoul(&maps[line + 1], nullptr, 16));
  }
  return from(::syscall(call, pid, &local, 1UL, &remote, 1UL, 0UL));
}

void e03_memory(Probe& probe) {
  probe.attempt("ptrace(ATTACH, 1)", [] {
    long result = ::ptrace(PTRACE_ATTACH, 1, nullptr, nullptr);
    Outcome outcome = from(result);
    if (result == 0) {
      ::waitpid(1, nullptr, __WALL);
      ::ptrace(PTRACE_DETACH, 1, nullptr, nullptr);
    }
    return outcome;
  });
  probe.attempt("ptrace(SEIZE, 1)",
                [] { return from(::ptrace(PTRACE_SEIZE, 1, nullptr, nullptr)); });
  probe.attempt("process_vm_readv(1)", [] { return vm(SYS_process_vm_readv, 1); });
  probe.attempt("process_vm_writev(1)", [] { return vm(SYS_process_vm_writev, 1); });
  probe.attempt("pidfd_getfd(1, 0)", [] {
    int fd = pidfd_of(1);
    if (fd < 0) return from(-1, "pidfd_open");
    return from(::syscall(SYS_pidfd_getfd, fd, 0, 0));
  });
  probe.attempt("kcmp with pid 1",
                [] { return from(::syscall(SYS_kcmp, ::getpid(), 1, KCMP_FILES, 0UL, 0UL)); });
  probe.attempt("process_madvise of pid 1", Unprovable{"needs advice that changes nothing"}, [] {
    int fd = pidfd_of(1);
    if (fd < 0) return from(-1, "pidfd_open");
    iovec range{reinterpret_cast<void*>(0x400000UL), 4096};
    return from(::syscall(SYS_process_madvise, fd, &range, 1UL, 20 /* MADV_COLD */, 0U));
  });
  for (const char* file : {"mem", "maps", "environ", "auxv", "io", "syscall", "stack", "pagemap",
                           "smaps", "personality"})
    probe.attempt(std::string("read /proc/1/") + file, [&] {
      int fd = ::open((std::string("/proc/1/") + file).c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0) return from(-1, "open");
      char data[16];
      unsigned long at = std::string_view(file) == "mem" ? first_mapping(1) : 0;
      ssize_t size = ::pread(fd, data, sizeof(data), static_cast<off_t>(at));
      return Outcome{size > 0, size < 0 ? errno : 0, size == 0 ? "empty" : ""};
    });
  for (const char* link : {"exe", "root", "cwd", "ns/mnt", "ns/user", "ns/net", "ns/pid", "fd/0"})
    probe.attempt(std::string("readlink /proc/1/") + link, [&] {
      char target[256];
      return from(::readlink((std::string("/proc/1/") + link).c_str(), target, sizeof(target)));
    });
  probe.attempt("list /proc/1/fd", [] { return when(!entries("/proc/1/fd").empty()); });
  probe.attempt("list /proc/1/map_files",
                [] { return when(!entries("/proc/1/map_files").empty()); });
}

double now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

int parent_of(int pid) {
  std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat", 512);
  std::size_t end = stat.rfind(')');
  return end == std::string::npos ? -1 : std::atoi(stat.c_str() + std::min(stat.size(), end + 4));
}

// Whether a process runs something that no path of this file system leads to: a helper of pid 1,
// not a program.
bool runs_foreign_program(const std::string& proc) {
  struct stat running {
  }, named{}, still{};
  if (::stat((proc + "/exe").c_str(), &running) != 0) return false;
  std::string path = link_of(proc + "/exe");
  bool foreign = ::stat(path.c_str(), &named) != 0 || named.st_ino != running.st_ino ||
                 named.st_dev != running.st_dev;
  // One that ended or executed something meanwhile has said nothing.
  return foreign && ::stat((proc + "/exe").c_str(), &still) == 0 &&
         still.st_ino == running.st_ino && still.st_dev == running.st_dev;
}

// Lays hands on every process that appears, before it has executed anything. Outside, being told of
// a process's exec by PTRACE_O_TRACEEXEC means the attack came in time. Inside that is not enough:
// the kernel lets a tracer in as soon as the new program's memory is in place, a moment before it
// reports the exec. What counts there is whether a process could be looked into while it still ran
// something else.
struct Race {
  long seen = 0, attached = 0, before_exec = 0, helpers = 0, descriptors = 0, memory = 0;

  void lay_hands_on(int pid) {
    std::string proc = "/proc/" + std::to_string(pid);
    ++seen;
    if (runs_foreign_program(proc)) ++helpers;
    int mem = ::open((proc + "/mem").c_str(), O_RDWR | O_CLOEXEC);
    int pidfd = pidfd_of(pid);
    std::string stolen;
    for (int fd = 3; pidfd >= 0 && fd < 24; ++fd) {
      int got = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, fd, 0));
      if (got < 0) continue;
      stolen += link_of("/proc/self/fd/" + std::to_string(got)) + " ";
      ::close(got);
    }
    if (::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXEC) == 0) {
      ++attached;
      if (runs_foreign_program(proc)) ++helpers;
      int status = 0;
      double end = now() + 0.2;
      while (now() < end) {
        pid_t got = ::waitpid(pid, &status, WNOHANG | __WALL);
        if (got == 0) continue;
        if (got < 0 || WIFEXITED(status) || WIFSIGNALED(status)) break;
        if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
          ++before_exec;
          if (mem >= 0) ++memory;
          if (!stolen.empty()) ++descriptors;
        }
        ::ptrace(PTRACE_CONT, pid, nullptr,
                 WIFSTOPPED(status) && status >> 16 == 0 ? WSTOPSIG(status) : 0);
      }
    }
    ::close(mem);
    ::close(pidfd);
  }
};

// A victim for the box: forks, waits a little, and executes.
void start_victims() {
  if (::fork() != 0) return;
  for (int i = 0; i < 200; ++i) {
    pid_t child = ::fork();
    if (child == 0) {
      ::usleep(2000);
      ::execl("/bin/true", "true", nullptr);
      ::_exit(127);
    }
    ::waitpid(child, nullptr, 0);
  }
  ::_exit(0);
}

// Argument: seconds.
void e03_race(Probe& probe) {
  double end = now() + static_cast<double>(probe.number(0, 1));
  std::printf("racing\n");
  std::fflush(stdout);
  if (probe.outside()) start_victims();
  Race race;
  std::set<int> known;
  for (int pid : process_ids()) known.insert(pid);
  // New processes get the numbers after the last, so those are tried without waiting for a look at
  // /proc.
  int next = *known.rbegin() + 1;
  while (now() < end) {
    for (int pid = next; pid < next + 24; ++pid) {
      if (::kill(pid, 0) != 0 && errno == ESRCH) continue;
      next = pid + 1;
      if (parent_of(pid) != ::getpid()) race.lay_hands_on(pid);
      break;
    }
    if (race.seen % 16 == 0)
      for (int pid : process_ids())
        if (known.insert(pid).second && pid >= next) next = pid;
  }
  std::string detail = std::to_string(race.seen) + " seen, " + std::to_string(race.attached) +
                       " attached, " + std::to_string(race.before_exec) + " of them before exec";
  if (probe.outside())
    probe.report("attach to a process before it executes its program",
                 when(race.before_exec > 0, detail));
  else
    probe.report("look into a process before it executes its program",
                 when(race.helpers > 0, detail));
  probe.report_note("its memory", when(race.memory > 0, std::to_string(race.memory)));
  probe.report_note("its descriptors",
                    when(race.descriptors > 0, std::to_string(race.descriptors)));
}

// A tracer changes getppid() of its child into another call, after the child's own entry was seen.
Outcome rewritten_call(long number, unsigned long argument) {
#if defined(__x86_64__)
  pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    (void)::syscall(SYS_getppid);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return when(false, "no tracing");
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  user_regs_struct regs{};
  for (int stops = 0; stops < 100; ++stops) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    if (::waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status))
      return when(false, "the child ended");
    ::ptrace(PTRACE_GETREGS, child, nullptr, &regs);
    if (regs.orig_rax != SYS_getppid) continue;
    regs.orig_rax = static_cast<unsigned long>(number);
    regs.rdi = argument;
    ::ptrace(PTRACE_SETREGS, child, nullptr, &regs);
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) return when(false, "the child was killed");
    ::ptrace(PTRACE_GETREGS, child, nullptr, &regs);
    long result = static_cast<long>(regs.rax);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return Outcome{result >= 0, result < 0 ? static_cast<int>(-result) : 0, ""};
  }
  return when(false, "the call was never seen");
#else
  (void)number;
  (void)argument;
  return when(false, "written for x86-64");
#endif
}

void e04_tracer(Probe& probe) {
  probe.needed("trace a child of its own", [] {
    pid_t child = ::fork();
    if (child == 0) {
      long result = ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ::_exit(result == 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return when(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  });
  probe.attempt("rewrite a traced call to unshare(CLONE_NEWUSER)",
                [] { return rewritten_call(SYS_unshare, CLONE_NEWUSER); });
  probe.attempt("rewrite a traced call to unshare(CLONE_NEWNS)",
                [] { return rewritten_call(SYS_unshare, CLONE_NEWNS); });
  probe.attempt("take the filter away with PTRACE_O_SUSPEND_SECCOMP", [] {
    pid_t child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
    long result = ::ptrace(PTRACE_SEIZE, child, nullptr, 1UL << 21 /* PTRACE_O_SUSPEND_SECCOMP */);
    Outcome outcome = from(result);
    ::kill(child, SIGKILL);
    return outcome;
  });
  probe.attempt("read the filter back (PTRACE_SECCOMP_GET_FILTER)",
                Unprovable{"there is no filter outside"}, [] {
                  pid_t child = ::fork();
                  if (child == 0) {
                    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
                    ::raise(SIGSTOP);
                    ::_exit(0);
                  }
                  ::waitpid(child, nullptr, 0);
                  Outcome outcome = from(
                      ::ptrace(static_cast<__ptrace_request>(0x420c), child, nullptr, nullptr));
                  ::kill(child, SIGKILL);
                  return outcome;
                });
}

void* idle(void*) {
  ::usleep(500'000);
  return nullptr;
}

std::string field(const std::string& status, const std::string& name) {
  std::size_t at = status.find("\n" + name + ":\t");
  if (at == std::string::npos) return "?";
  at += name.size() + 3;
  return status.substr(at, status.find('\n', at) - at);
}

void install(unsigned int flags, std::span<sock_filter> code, long* result) {
  sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  *result = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

void e33_threads(Probe& probe) {
  probe.attempt("a thread without a filter or with new privileges", [] {
    pthread_t threads[8];
    for (pthread_t& thread : threads) ::pthread_create(&thread, nullptr, idle, nullptr);
    std::string bare;
    for (const std::string& task : entries("/proc/self/task")) {
      std::string status = read_all("/proc/self/task/" + task + "/status");
      if (field(status, "Seccomp") != "2" || field(status, "NoNewPrivs") != "1") bare += task + " ";
    }
    return when(!bare.empty(), bare);
  });
  probe.needed("add a filter of its own", [] {
    sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    long result = 0;
    install(0, code, &result);
    return from(result);
  });
  probe.attempt("unshare(CLONE_NEWUSER) behind a filter that allows all", [] {
    sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    long result = 0;
    install(0, code, &result);
    return from(::unshare(CLONE_NEWUSER));
  });
  probe.attempt("prctl(PR_SET_NO_NEW_PRIVS, 0)", Unprovable{"the kernel never takes it back"},
                [] { return from(::prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)); });
}

// A supervisor of the program's own says "continue" to a call that the sandbox refuses.
void e34_notify(Probe& probe) {
  probe.attempt("unshare(CLONE_NEWUTS) waved through by a notifier of its own", [] {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    int out[2];
    if (::pipe(out) != 0) return from(-1);
    long listener = 0;
    install(SECCOMP_FILTER_FLAG_NEW_LISTENER, code, &listener);
    if (listener < 0) return from(-1, "no listener");
    pid_t child = ::fork();
    if (child == 0) {
      int result[2] = {::unshare(CLONE_NEWUTS), errno};
      (void)!::write(out[1], result, sizeof(result));
      ::_exit(0);
    }
    seccomp_notif request{};
    seccomp_notif_resp answer{};
    // Where the sandbox refuses first, no notification ever comes: the child has ended by then.
    for (int i = 0; i < 100; ++i) {
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) == child) break;
      ::memset(&request, 0, sizeof(request));
      ::alarm(2);
      timespec pause{0, 10'000'000};
      ::nanosleep(&pause, nullptr);
      if (::waitpid(child, &status, WNOHANG) == child) break;
      if (::ioctl(static_cast<int>(listener), SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) continue;
      answer = {};
      answer.id = request.id;
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      (void)::ioctl(static_cast<int>(listener), SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
    int result[2] = {-1, EPERM};
    ::close(out[1]);
    (void)!::read(out[0], result, sizeof(result));
    return Outcome{result[0] == 0, result[0] == 0 ? 0 : result[1], ""};
  });
}

void e38_ids(Probe& probe) {
  bool root = ::geteuid() == 0;
  auto set_uid = [&](unsigned uid) {
    probe.attempt("setresuid(" + std::to_string(uid) + ")",
                  [uid] { return from(::syscall(SYS_setresuid, uid, uid, uid)); });
  };
  for (unsigned uid : {65535U, 65536U, 100'000U, 0x10000000U, 4294967294U}) set_uid(uid);
  if (!root) {
    set_uid(0);
    probe.attempt("setresgid(0)", [] { return from(::syscall(SYS_setresgid, 0, 0, 0)); });
    probe.attempt("setgroups(0)", [] {
      gid_t group = 0;
      return from(::syscall(SYS_setgroups, 1, &group));
    });
  }
  probe.attempt("setresgid(65535)",
                [] { return from(::syscall(SYS_setresgid, 65535, 65535, 65535)); });
  probe.attempt("setgroups(65535)", [] {
    gid_t group = 65535;
    return from(::syscall(SYS_setgroups, 1, &group));
  });
  probe.attempt("setfsuid(65535)", [] {
    (void)::syscall(SYS_setfsuid, 65535);
    return when(::syscall(SYS_setfsuid, -1) == 65535);
  });
  for (const char* file : {"uid_map", "gid_map", "setgroups"})
    probe.attempt(std::string("write /proc/self/") + file,
                  Unprovable{"the first namespace has no map to write"},
                  [&] { return when(write_all(std::string("/proc/self/") + file, "0 0 1\n")); });
  probe.attempt("raise a capability into the ambient set", [] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    (void)::syscall(SYS_capget, &header, sets);
    sets[0].inheritable |= 1U << CAP_SYS_ADMIN;
    if (::syscall(SYS_capset, &header, sets) != 0) return from(-1, "capset");
    return from(::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
  });
}

}  // namespace

std::span<const Case> process_cases() {
  static constexpr Case cases[] = {
      {"E01", e01_signals, {}},   {"E02", e02_kill_all, {}}, {"E03", e03_memory, {}},
      {"E03-race", e03_race, {}}, {"E04", e04_tracer, {}},   {"E33", e33_threads, {}},
      {"E34", e34_notify, {}},    {"E38", e38_ids, {}},
  };
  return cases;
}

}  // namespace probes
