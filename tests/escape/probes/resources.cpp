// R01-R03, R12-R16, R19, R22-R25: processes, memory, processor, output. An attempt succeeds when it
// gets more than the limit given as argument; outside, where a box has room for it, it does.
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

constexpr long kMiB = 1L << 20;

void reap(const std::vector<pid_t>& children) {
  for (pid_t child : children) ::kill(child, SIGKILL);
  for (pid_t child : children) ::waitpid(child, nullptr, 0);
}

// Argument: how many processes must live at once.
void r01_fork_bomb(Probe& probe) {
  long wanted = probe.number(0, 40);
  probe.attempt("keep " + std::to_string(wanted) + " processes alive", [&] {
    std::vector<pid_t> children;
    int err = 0;
    for (long i = 0; i < wanted; ++i) {
      pid_t child = ::fork();
      if (child == 0) {
        ::pause();
        ::_exit(0);
      }
      if (child < 0) {
        err = errno;
        break;
      }
      children.push_back(child);
    }
    long alive = static_cast<long>(children.size());
    reap(children);
    return Outcome{alive >= wanted, err, std::to_string(alive) + " alive"};
  });
}

// Never returns by itself: every process forks two more as fast as it may.
void r02_endless_forks(Probe&) {
  std::puts("started");
  std::fflush(stdout);
  ::signal(SIGCHLD, SIG_IGN);
  for (;;)
    if (::fork() < 0) ::usleep(1000);
}

// Arguments: MiB of anonymous memory to touch.
void r03_memory_bomb(Probe& probe) {
  long mib = probe.number(0, 640);
  probe.attempt("touch " + std::to_string(mib) + " MiB", [&] {
    for (long i = 0; i < mib; ++i) {
      void* block = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      if (block == MAP_FAILED) return from(-1, std::to_string(i) + " MiB");
      ::memset(block, 0x5a, kMiB);
    }
    return when(true);
  });
}

// The process itself is the bomb, so that the whole execution ends by it.
void r03_bomb_here(Probe& probe) {
  for (long i = 0; i < probe.number(0, 640); ++i) {
    void* block = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block != MAP_FAILED) ::memset(block, 0x5a, kMiB);
  }
}

// Argument: MiB that must arrive.
void r12_flood(Probe& probe) {
  long mib = probe.number(0, 100);
  probe.attempt("push " + std::to_string(mib) + " MiB into a reader", [&] {
    int ends[2];
    if (::pipe(ends) != 0) return from(-1);
    pid_t child = ::fork();
    if (child == 0) {
      std::string block(65536, 'y');
      while (::write(ends[1], block.data(), block.size()) > 0) {
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    std::string block(65536, 0);
    long got = 0;
    ssize_t size = 0;
    while (got < mib * kMiB && (size = ::read(ends[0], block.data(), block.size())) > 0)
      got += size;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return when(got >= mib * kMiB);
  });
}

long zombies() {
  long count = 0;
  for (int pid : process_ids()) {
    std::string stat = read_all("/proc/" + std::to_string(pid) + "/stat");
    std::size_t end = stat.rfind(')');
    if (end != std::string::npos && stat.size() > end + 2 && stat[end + 2] == 'Z') ++count;
  }
  return count;
}

// Argument: how many orphans to make.
void r14_zombies(Probe& probe) {
  probe.set_patience(60);
  long wanted = probe.number(0, 30);
  probe.attempt(std::to_string(wanted) + " orphans that nobody reaps", [&] {
    for (long i = 0; i < wanted; ++i) {
      pid_t child = ::fork();
      if (child < 0) {
        ::usleep(1000);
        --i;
        continue;
      }
      if (child == 0) {
        (void)::fork();
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    }
    long left = zombies();
    for (int i = 0; i < 20 && left > 5; ++i) {
      ::usleep(100'000);
      left = zombies();
    }
    return when(left > 5, std::to_string(left) + " zombies");
  });
}

// Argument: a token for the orphan's name, so that the host can look for it.
void r15_orphan(Probe& probe) {
  int ends[2];
  if (::pipe(ends) != 0) return;
  if (::fork() == 0) {
    ::setsid();
    pid_t orphan = ::fork();
    if (orphan != 0) {
      (void)!::write(ends[1], &orphan, sizeof(orphan));
      ::_exit(0);
    }
    for (int fd = 0; fd < 16; ++fd) ::close(fd);
    std::string token = probe.arg(0, "asr-orphan");
    const char* argv[] = {token.c_str(), "HOLD-sleep", nullptr};
    ::execve("/proc/self/exe", const_cast<char* const*>(argv), nullptr);
    ::sleep(300);
    ::_exit(0);
  }
  pid_t orphan = 0;
  (void)!::read(ends[0], &orphan, sizeof(orphan));
  ::usleep(50'000);
  probe.report_note("orphan", when(true, std::to_string(orphan)));
  if (probe.outside())
    probe.report("a daemonised process outlives its parent", from(::kill(orphan, 0)));
}

[[noreturn]] void spin() {
  for (volatile unsigned turns = 0;;) turns = turns + 1;
}

void r16_scheduling(Probe& probe) {
  probe.attempt("sched_setscheduler(SCHED_FIFO)", [] {
    sched_param param{1};
    return from(::sched_setscheduler(0, SCHED_FIFO, &param));
  });
  probe.attempt("sched_setscheduler(SCHED_RR)", [] {
    sched_param param{1};
    return from(::sched_setscheduler(0, SCHED_RR, &param));
  });
  probe.attempt("setpriority(-20)", [] { return from(::setpriority(PRIO_PROCESS, 0, -20)); });
  probe.attempt("raise RLIMIT_RTPRIO", Unprovable{"needs CAP_SYS_RESOURCE outside"}, [] {
    rlimit limit{99, 99};
    return from(::setrlimit(RLIMIT_RTPRIO, &limit));
  });
  probe.attempt("raise RLIMIT_NICE", Unprovable{"needs CAP_SYS_RESOURCE outside"}, [] {
    rlimit limit{40, 40};
    return from(::setrlimit(RLIMIT_NICE, &limit));
  });
  probe.attempt("ioprio_set(real time)", [] {
    // Of the kernel's interface, not out of <linux/ioprio.h>: in some releases that is no C++.
    constexpr int kThisProcess = 1;
    constexpr int kRealTime = 1 << 13;
    return from(::syscall(SYS_ioprio_set, kThisProcess, 0, kRealTime));
  });
  probe.attempt("two seconds of processor in one", Unprovable{"only where nothing else is running"},
                [] {
                  std::vector<pid_t> children;
                  for (int i = 0; i < 2; ++i) {
                    pid_t child = ::fork();
                    if (child == 0) spin();
                    children.push_back(child);
                  }
                  ::sleep(1);
                  reap(children);
                  rusage used{};
                  ::getrusage(RUSAGE_CHILDREN, &used);
                  double seconds = static_cast<double>(used.ru_utime.tv_sec) +
                                   static_cast<double>(used.ru_utime.tv_usec) / 1e6;
                  return when(seconds > 0.8, std::to_string(seconds) + " s");
                });
}

// Arguments: seconds, threads of it.
void r16_spin(Probe& probe) {
  long spinners = probe.number(1, 4);
  std::vector<pid_t> children;
  for (long i = 0; i < spinners; ++i) {
    pid_t child = ::fork();
    if (child == 0) spin();
    children.push_back(child);
  }
  ::sleep(static_cast<unsigned>(probe.number(0, 2)));
  reap(children);
}

// Argument: a SysV key that the test has made on the host.
void r19_ipc(Probe& probe) {
  probe.set_patience(30);
  probe.attempt("640 MiB of SysV shared memory", [] {
    int id = ::shmget(IPC_PRIVATE, 640 * kMiB, IPC_CREAT | 0600);
    if (id < 0) return from(-1, "shmget");
    char* block = static_cast<char*>(::shmat(id, nullptr, 0));
    ::shmctl(id, IPC_RMID, nullptr);
    if (block == reinterpret_cast<char*>(-1)) return from(-1, "shmat");
    for (long i = 0; i < 640 * kMiB; i += 4096) block[i] = 1;
    return when(true);
  });
  probe.attempt("640 MiB of memfd", [] {
    int fd = ::memfd_create("asr", MFD_CLOEXEC);
    std::string block(kMiB, 'm');
    for (long i = 0; i < 640; ++i)
      if (::write(fd, block.data(), block.size()) != kMiB) return from(-1);
    return when(true);
  });
  probe.attempt("mlock 64 MiB", [] {
    void* block =
        ::mmap(nullptr, 64 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return from(::mlock(block, 64 * kMiB));
  });
  probe.attempt(
      "16 MiB of POSIX message queues", Unprovable{"RLIMIT_MSGQUEUE binds outside as well"}, [] {
        mq_attr attr{};
        attr.mq_maxmsg = 10;
        attr.mq_msgsize = 8192;
        for (int i = 0; i < 200; ++i) {
          std::string name = "/asr-" + std::to_string(::getpid()) + "-" + std::to_string(i);
          mqd_t queue = ::mq_open(name.c_str(), O_CREAT | O_RDWR, 0600, &attr);
          if (queue == -1) return from(-1, std::to_string(i) + " queues");
          ::mq_unlink(name.c_str());
        }
        return when(true);
      });
  probe.attempt("a huge page", Unprovable{"the machine keeps no huge pages"}, [] {
    void* block = ::mmap(nullptr, 2 * kMiB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    return from(block == MAP_FAILED ? -1 : 0);
  });
  if (probe.args() > 0)
    probe.attempt("find the host's shared memory",
                  [&] { return from(::shmget(static_cast<key_t>(probe.number(0, 0)), 0, 0)); });
}

void r22_kernel_log(Probe& probe) {
  probe.attempt("open /dev/kmsg to write",
                [] { return from(::open("/dev/kmsg", O_WRONLY | O_CLOEXEC)); });
  probe.attempt("read the kernel log", [] {
    char text[4096];
    return from(::klogctl(3, text, sizeof(text)));
  });
  if (probe.outside()) return;
  probe.note("300 crashes", [] {
    for (int i = 0; i < 300; ++i) {
      pid_t child = ::fork();
      if (child == 0) {
        *reinterpret_cast<volatile int*>(16 + i * 4096) = 1;
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    }
    return when(true);
  });
  probe.note("100,000 refused calls", [] {
    for (int i = 0; i < 100'000; ++i) (void)::syscall(SYS_reboot, 0, 0, 0, 0);
    return when(true);
  });
}

void r23_core(Probe& probe) {
  std::string pattern = read_all("/proc/sys/kernel/core_pattern");
  Unprovable why{
      pattern.starts_with('/') || pattern.starts_with('|') ? "core_pattern leads elsewhere" : ""};
  probe.attempt("leave a core file", why, [&] {
    if (::chdir(probe.scratch().c_str()) != 0) return from(-1, "chdir");
    rlimit limit{};
    ::getrlimit(RLIMIT_CORE, &limit);
    rlimit most{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_CORE, &most) != 0) {
      limit.rlim_cur = limit.rlim_max;
      (void)::setrlimit(RLIMIT_CORE, &limit);
    }
    pid_t child = ::fork();
    if (child == 0) ::abort();
    int status = 0;
    ::waitpid(child, &status, 0);
    return when(WIFSIGNALED(status) && WCOREDUMP(status));
  });
}

void r24_pressure(Probe& probe) {
  bool has = ::access("/proc/pressure/cpu", F_OK) == 0;
  for (const char* what : {"cpu", "io", "memory"})
    probe.attempt(
        std::string("set a trigger in /proc/pressure/") + what,
        Unprovable{has || !probe.outside() ? "" : "this kernel keeps no pressure figures"}, [&] {
          int fd = ::open((std::string("/proc/pressure/") + what).c_str(),
                          O_RDWR | O_NONBLOCK | O_CLOEXEC);
          if (fd < 0) return from(-1, "open");
          return from(::write(fd, "some 500000 2000000", 20));
        });
}

void r25_neighbours(Probe& probe) {
  for (const char* name :
       {"diskstats", "interrupts", "softirqs", "schedstat", "zoneinfo", "vmstat", "buddyinfo"}) {
    std::string path = std::string("/proc/") + name;
    bool has = ::access(path.c_str(), F_OK) == 0;
    probe.attempt("read " + path,
                  Unprovable{has || !probe.outside() ? "" : "this kernel has no " + path},
                  [&] { return when(!read_all(path).empty()); });
  }
  for (const char* name : {"loadavg", "stat", "uptime", "meminfo"}) {
    std::string path = std::string("/proc/") + name;
    probe.note("read " + path, [&] { return when(!read_all(path).empty()); });
  }
}

// Writes to both streams until it is stopped. Argument: bytes per write.
void flood(Probe& probe) {
  std::string block(static_cast<std::size_t>(probe.number(0, 65536)), 'f');
  if (block.size() == 1) block = "\x1b";
  for (;;) {
    if (::write(1, block.data(), block.size()) < 0 && errno != EAGAIN) break;
    if (::write(2, block.data(), block.size()) < 0 && errno != EAGAIN) break;
  }
}

}  // namespace

std::span<const Case> resource_cases() {
  static constexpr Case cases[] = {
      {"R01", r01_fork_bomb, {.pids = 50}},
      {"R02", r02_endless_forks, {.memory_mib = 64, .pids = 50}},
      {"R03", r03_memory_bomb, {.memory_mib = 1024}},
      {"R03-here", r03_bomb_here, {.memory_mib = 64}},
      {"R12", r12_flood, {}},
      {"FLOOD", flood, {}},
      {"R14", r14_zombies, {.pids = 50}},
      {"R15", r15_orphan, {}},
      {"R16", r16_scheduling, {}},
      {"R16-spin", r16_spin, {}},
      {"R19", r19_ipc, {.host_ipc = true, .memory_mib = 1024}},
      {"R22", r22_kernel_log, {}},
      {"R23", r23_core, {}},
      {"R24", r24_pressure, {}},
      {"R25", r25_neighbours, {}},
  };
  return cases;
}

}  // namespace probes
