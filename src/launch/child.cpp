// Runs between clone3() and the guest's first message, as pid 1 of the new namespaces. It
// allocates, logs and throws nothing: every step is one or a few system calls on values the planner
// prepared, and a test inspects the object file. The order matters; where it does, the step says
// why.

#include "launch/child.hpp"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os/landlock.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

int put_file(const char* path, const char* text) noexcept {
  int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  std::size_t size = ::strlen(text);
  ssize_t n = ::write(fd, text, size);
  int err = errno;
  ::close(fd);
  errno = err;
  return n == static_cast<ssize_t>(size) ? 0 : -1;
}

namespace {

constexpr std::size_t kMostReceived = kMaxLayers > kMaxVolumes + 1 ? kMaxLayers : kMaxVolumes + 1;

// Ids mapped in the inner namespace: all of the outer one but the guest's own.
constexpr std::uint32_t kInnerIds = kGuestId;

// First, so that everything the set-up allocates in the kernel is charged to the sandbox.
int join_groups(Child& child) noexcept {
  for (std::size_t i = 0; i < child.plan.join_count; ++i)
    if (::write(child.plan.joins[i], "0", 1) != 1) return -1;
  return 0;
}

// Descriptors that come with one byte from the zygote; -1 if it gave up, or is gone.
int receive_mounts(const Child& child, int* mounts, std::size_t most) noexcept {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostReceived)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(child.plan.sync_socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n != 1) {
    if (n == 0) errno = ECANCELED;
    return -1;
  }
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return 0;
  std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  if (count > most) count = most;
  ::memcpy(mounts, CMSG_DATA(header), count * sizeof(int));
  return static_cast<int>(count);
}

int wait_for_ids(Child& child) noexcept {
  std::size_t extra = child.plan.volume_count + (child.plan.disk ? 1 : 0);
  if (extra > 0 && receive_mounts(child, child.extra_mounts.data(), extra) < 0) return -1;
  int layers = receive_mounts(child, child.layer_mounts.data(), kMaxLayers);
  if (layers < 0) return -1;
  child.outcome.idmapped = layers > 0 && child.plan.idmapped;
  return 0;
}

int take_ids(Child& child) noexcept {
  if (::setsid() < 0) return -1;
  if (!child.plan.rootless) {
    if (::setgroups(0, nullptr) != 0) return -1;
    if (::setresgid(kGuestId, kGuestId, kGuestId) != 0) return -1;
    if (::setresuid(kGuestId, kGuestId, kGuestId) != 0) return -1;
  }
  // What the set-up makes belongs to the sandbox's root, with exactly the modes it says.
  ::syscall(SYS_setfsgid, 0);
  ::syscall(SYS_setfsuid, 0);
  ::umask(0);
  // Changing ids made us undumpable, and then our files in /proc would be the host's root's: the
  // inner namespace's maps could not be written. drop_privileges() takes it back before any program
  // runs.
  return ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

// Before /proc/sys becomes read-only. The first is a lock: no user namespace below the inner one.
int kernel_settings(Child& child) noexcept {
  if (put_file("proc/sys/user/max_user_namespaces", child.plan.nested_namespaces ? "8" : "1") != 0)
    return -1;
  // Low ports are for sale to everybody: the network namespace is the sandbox's alone.
  (void)put_file("proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  return 0;
}

int idle(void*) noexcept {
  for (;;) ::pause();
}

int write_inner_map(int pid, const char* name, const LaunchPlan& plan) noexcept {
  Text path;
  path.add("proc/");
  char digits[12];
  std::size_t n = sizeof digits;
  digits[--n] = '\0';
  for (int value = pid; value > 0; value /= 10) digits[--n] = static_cast<char>('0' + value % 10);
  path.add(digits + n);
  path.add("/");
  path.add(name);
  if (name[0] == 'n') return ::open(path.bytes, O_RDONLY | O_CLOEXEC);
  if (name[0] == 's') return put_file(path.bytes, "deny");
  static_assert(kInnerIds == 65535);
  return put_file(path.bytes, plan.rootless ? "1000 0 1" : "0 0 65535");
}

// The namespace the workload lives in. A process is needed to make it, and only for as long as that
// takes.
int inner_namespace(Child& child) noexcept {
  rlimit processes{};
  if (::getrlimit(RLIMIT_NPROC, &processes) != 0) return -1;
  // A user namespace remembers its creator's limit as the most its inhabitants may have together.
  // The guest itself lives outside and keeps the old one, so it can still start a program when they
  // are full.
  rlimit lowered{child.plan.pids, processes.rlim_max};
  if (::setrlimit(RLIMIT_NPROC, &lowered) != 0) return -1;
  alignas(16) static char stack[4096];
  int pid = ::clone(idle, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER | SIGCHLD, nullptr);
  if (pid < 0) return -1;
  if (::setrlimit(RLIMIT_NPROC, &processes) != 0) return -1;
  if (child.plan.rootless && write_inner_map(pid, "setgroups", child.plan) != 0) return -1;
  if (write_inner_map(pid, "uid_map", child.plan) != 0) return -1;
  if (write_inner_map(pid, "gid_map", child.plan) != 0) return -1;
  child.outcome.inner_userns = write_inner_map(pid, "ns/user", child.plan);
  if (child.outcome.inner_userns < 0) return -1;
  return ::kill(pid, SIGKILL);  // The guest reaps it, as it does every orphan.
}

int loopback(Child& child) noexcept {
  if (!child.plan.loopback) return 0;
  int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  int result = ::ioctl(socket, SIOCSIFFLAGS, &request);
  int err = errno;
  ::close(socket);
  errno = err;
  return result;
}

// Late: only our own code ran so far, and a machine full of busy sandboxes, or a small share of it,
// must not slow down the making of a new one.
int join_cpu_group(Child& child) noexcept {
  if (child.plan.cpu_join >= 0 && ::write(child.plan.cpu_join, "0", 1) != 1) return -1;
  // After joining: this way the groups above stay invisible in /proc/self/cgroup.
  return ::unshare(CLONE_NEWCGROUP);
}

int set_limit(int which, rlim_t most) noexcept {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(which), &now) != 0) return -1;
  if (now.rlim_max != RLIM_INFINITY && most > now.rlim_max) most = now.rlim_max;
  rlimit wanted{most, most};
  return ::setrlimit(static_cast<__rlimit_resource_t>(which), &wanted);
}

int limits(Child& child) noexcept {
  // A piped core_pattern runs its handler on the host even at 0; the kernel's special value 1 stops
  // it.
  if (set_limit(RLIMIT_CORE, child.plan.piped_cores ? 1 : 0) != 0) return -1;
  if (set_limit(RLIMIT_MEMLOCK, 8U << 20) != 0) return -1;
  if (set_limit(RLIMIT_MSGQUEUE, 819200) != 0) return -1;
  if (set_limit(RLIMIT_SIGPENDING, 4096) != 0) return -1;
  if (set_limit(RLIMIT_NICE, 0) != 0 || set_limit(RLIMIT_RTPRIO, 0) != 0) return -1;
  if (child.plan.file_bytes != 0 && set_limit(RLIMIT_FSIZE, child.plan.file_bytes) != 0) return -1;
  ::umask(022);
  return 0;
}

// What the guest still does: start programs as other users in the inner namespace, signal them,
// look at them, and work on files in their name.
int drop_privileges(Child& child) noexcept {
  // Opened while it is ours: those of whoever cannot be traced belong to the host's root.
  child.outcome.own_io = ::open("/proc/self/io", O_RDONLY | O_CLOEXEC);
  if (!child.plan.rootless) {
    ::syscall(SYS_setfsgid, kGuestId);
    ::syscall(SYS_setfsuid, kGuestId);
  }
  constexpr std::uint64_t kKept = 1ULL << CAP_SETUID | 1ULL << CAP_SETGID | 1ULL << CAP_SYS_ADMIN |
                                  1ULL << CAP_KILL | 1ULL << CAP_SYS_PTRACE |
                                  1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_CHOWN | 1ULL << CAP_FOWNER;
  // Not the bounding set: the guest never calls execve(), and a program's is set when it enters the
  // inner namespace, which would undo whatever was dropped here.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = static_cast<std::uint32_t>(kKept);
  data[1].effective = data[1].permitted = static_cast<std::uint32_t>(kKept >> 32);
  if (::syscall(SYS_capset, &header, data) != 0) return -1;
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return -1;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

int landlock(Child& child) noexcept {
  return child.plan.landlock_abi >= 6 ? restrict_scopes(child.plan.landlock_abi) : 0;
}

// Last: from here on not even we can mount, and the workload inherits it. From here on, too, a call
// of ours that the gate refuses would wait for our own answer, for ever.
int gate(Child& child) noexcept {
  auto install = [](unsigned long flags, const sock_fprog& program) {
    return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
  };
  child.outcome.refusals = install(SECCOMP_FILTER_FLAG_NEW_LISTENER, child.plan.telling_gate);
  if (child.outcome.refusals >= 0) return 0;
  // Somebody around us listens already, and a process has one listener at most; or the kernel is
  // too old.
  if (errno != EBUSY && errno != EINVAL) return -1;
  return install(0, child.plan.quiet_gate);
}

std::uint64_t micros() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

[[noreturn]] void report_and_leave(const LaunchPlan& plan, std::uint32_t step, int err) noexcept {
  struct [[gnu::packed]] {
    std::uint16_t version = kWireVersion;
    std::uint16_t type = static_cast<std::uint16_t>(wire::GuestType::launch_failed);
    std::uint32_t id = 0;
    std::uint32_t step = 0;
    std::int32_t err = 0;
  } frame;
  frame.step = step;
  frame.err = err;
  (void)!::write(plan.guest_socket, &frame, sizeof frame);
  ::_exit(127);
}

}  // namespace

void set_up_sandbox(const LaunchPlan& plan, LaunchOutcome& outcome) noexcept {
  using Step = int (*)(Child&) noexcept;
  static constexpr std::array<Step, kLaunchSteps> kSteps{
      join_groups,     wait_for_ids,    take_ids,   scratch_mount,   scratch_folders, root_mount,
      layer_mounts,    writable_mounts, proc_mount, kernel_settings, inner_namespace, proc_masks,
      dev_mounts,      volume_mounts,   loopback,   enter_root,      join_cpu_group,  limits,
      drop_privileges, landlock,        gate};
  Child child{plan, outcome, {}, {}};
  child.layer_mounts.fill(-1);
  child.extra_mounts.fill(-1);
  std::uint64_t before = micros();
  for (std::uint32_t i = 0; i < kLaunchSteps; ++i) {
    if (kSteps[i](child) != 0) report_and_leave(plan, i, errno);
    std::uint64_t now = micros();
    outcome.step_micros[i] = static_cast<std::uint32_t>(now - before);
    before = now;
  }
}

}  // namespace asr
