// Runs between clone3() and the guest's first message, as pid 1 of the new namespaces. It
// allocates, logs and throws nothing: every step is one or a few system calls on values the planner
// prepared, and a test inspects the object file. The order matters; where it does, the step says
// why.

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

#include "launch/plan.hpp"
#include "os/landlock.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

namespace {

// Ids mapped in the inner namespace: all of the outer one but the guest's own.
constexpr std::uint32_t kInnerIds = kGuestId;

struct Child {
  const LaunchPlan& plan;
  LaunchOutcome& outcome;
  std::array<int, kMaxLayers> layer_mounts;  // id-mapped clones, or -1
};

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

// First, so that everything the set-up allocates in the kernel is charged to the sandbox.
int join_groups(Child& child) noexcept {
  for (std::size_t i = 0; i < child.plan.join_count; ++i)
    if (::write(child.plan.joins[i], "0", 1) != 1) return -1;
  return 0;
}

int wait_for_ids(Child& child) noexcept {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxLayers)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do n = ::recvmsg(child.plan.sync_socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n != 1) {
    if (n == 0) errno = ECANCELED;  // The zygote gave up, or is gone.
    return -1;
  }
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    ::memcpy(child.layer_mounts.data(), CMSG_DATA(header), count * sizeof(int));
    child.outcome.idmapped = count > 0;
  }
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

int scratch_mount(Child& child) noexcept {
  if (::mount("scratch", "/scratch", "tmpfs", MS_NOSUID | MS_NODEV, child.plan.scratch_options) !=
      0)
    return -1;
  return ::chdir("/scratch");
}

struct Folder {
  const char* path;
  std::uint32_t mode;
  std::uint32_t id;
};

int make_folder(const Child& child, const Folder& folder) noexcept {
  if (::mkdir(folder.path, folder.mode) != 0) return -1;
  if (folder.id == 0 || child.plan.rootless) return 0;
  return ::chown(folder.path, folder.id, folder.id);
}

// The upper layer brings its own /proc, /dev and so on: a directory in the upper layer hides
// whatever an environment has there, symbolic links included, so no mount below can be led astray.
int scratch_folders(Child& child) noexcept {
  if (child.plan.import_root) return ::mkdir("root", 0755);
  static constexpr Folder kFolders[] = {
      {"root", 0755, 0},
      {"work", 0700, 0},
      {"upper", 0755, 0},
      {"upper/proc", 0555, 0},
      {"upper/dev", 0755, 0},
      {"upper/tmp", 01777, 0},
      {"upper/workspace", 0755, kUserId},
      {"upper/home", 0755, 0},
      {"upper/home/user", 0755, kUserId},
      {"upper/root", 0700, 0},
      {"shm", 01777, 0},
  };
  for (const Folder& folder : kFolders)
    if (make_folder(child, folder) != 0) return -1;
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    char name[] = "lower0";
    name[5] = static_cast<char>('0' + i);
    if (::mkdir(name, 0755) != 0) return -1;
  }
  if (!child.plan.read_only) return 0;
  static constexpr Folder kWritable[] = {
      {"tmp", 01777, 0}, {"workspace", 0755, kUserId}, {"home", 0755, kUserId}};
  for (const Folder& folder : kWritable)
    if (make_folder(child, folder) != 0) return -1;
  return 0;
}

int attach_layer(const Child& child, std::size_t i, const char* where) noexcept {
  if (child.layer_mounts[i] >= 0)
    return static_cast<int>(::syscall(SYS_move_mount, child.layer_mounts[i], "", AT_FDCWD, where,
                                      MOVE_MOUNT_F_EMPTY_PATH));
  return ::mount(child.plan.layers[i].stage_path, where, nullptr, MS_BIND | MS_REC, nullptr);
}

bool is_root_layer(const Child& child, std::size_t i) noexcept {
  return child.plan.layers[i].target[0] == '\0';
}

struct Text {
  char bytes[256];
  std::size_t size = 0;
  void add(const char* part) noexcept {
    while (*part != '\0' && size + 1 < sizeof bytes) bytes[size++] = *part++;
    bytes[size] = '\0';
  }
};

// One overlay of the layers that share `target`, mounted on `where`.
int mount_overlay(Child& child, const char* target, const char* where, const char* upper,
                  const char* work, unsigned long flags) noexcept {
  Text options;
  options.add("lowerdir=");
  bool first = true;
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    if (::strcmp(child.plan.layers[i].target, target) != 0) continue;
    char name[] = "lower0";
    name[5] = static_cast<char>('0' + i);
    if (attach_layer(child, i, name) != 0) return -1;
    if (!first) options.add(":");
    options.add(name);
    first = false;
  }
  options.add(",upperdir=");
  options.add(upper);
  options.add(",workdir=");
  options.add(work);
  // userxattr: marks of the overlay itself live where the workload cannot forge them, and redirects
  // and metadata-only copies, which could point out of a layer, are off.
  options.add(",userxattr,index=off,xino=off");
  return ::mount("overlay", where, "overlay", flags, options.bytes);
}

int root_mount(Child& child) noexcept {
  if (child.plan.import_root) return attach_layer(child, 0, "root");
  unsigned long flags = MS_NOSUID | MS_NODEV | (child.plan.read_only ? MS_RDONLY : 0);
  return mount_overlay(child, "", "root", "upper", "work", flags);
}

int layer_mounts(Child& child) noexcept {
  if (child.plan.import_root) return 0;
  if (::chdir("root") != 0) return -1;
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    if (is_root_layer(child, i)) continue;
    if (child.plan.read_only) {
      if (attach_layer(child, i, child.plan.layers[i].target) != 0) return -1;
      continue;
    }
    if (::chdir("..") != 0) return -1;
    char upper[] = "upper_0";
    char work[] = "work_0";
    upper[6] = work[5] = static_cast<char>('0' + i);
    if (::mkdir(upper, 0755) != 0 || ::mkdir(work, 0700) != 0) return -1;
    Text where;
    where.add("root/");
    where.add(child.plan.layers[i].target);
    if (mount_overlay(child, child.plan.layers[i].target, where.bytes, upper, work,
                      MS_NOSUID | MS_NODEV) != 0)
      return -1;
    if (::chdir("root") != 0) return -1;
  }
  return 0;
}

int writable_mounts(Child& child) noexcept {
  if (child.plan.import_root || !child.plan.read_only) return 0;
  if (::mount("../tmp", "tmp", nullptr, MS_BIND, nullptr) != 0) return -1;
  if (::mount("../workspace", "workspace", nullptr, MS_BIND, nullptr) != 0) return -1;
  return ::mount("../home", "home/user", nullptr, MS_BIND, nullptr);
}

int proc_mount(Child& child) noexcept {
  // An imported root has no /proc of ours to mount on; the scratch root serves as well.
  if (child.plan.import_root && (::mkdir("/scratch/proc", 0555) != 0 || ::chdir("/scratch") != 0))
    return -1;
  // hidepid: programs see those of their own user, and pid 1 is nobody's.
  return ::mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible");
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

int proc_masks(Child& child) noexcept {
  if (child.plan.import_root) return 0;
  if (::chdir("proc") != 0) return -1;
  for (const char* name : child.plan.masked_files)
    if (::mount("/blank/file", name, nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT) return -1;
  for (const char* name : child.plan.masked_folders)
    if (::mount("/blank/folder", name, nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT)
      return -1;
  if (::mount("sys", "sys", nullptr, MS_BIND, nullptr) != 0) return -1;
  if (::mount(nullptr, "sys", nullptr,
              MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return -1;
  return ::chdir("..");
}

int dev_mounts(Child& child) noexcept {
  if (child.plan.import_root) return 0;
  if (::mount("/dev", "dev", nullptr, MS_BIND | MS_REC, nullptr) != 0) return -1;
  if (::mount(
          "devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
          // The machine has some thousand terminals for everybody: a sandbox gets a few of them.
          child.plan.rootless ? "newinstance,ptmxmode=0666,mode=0620,max=32"
                              : "newinstance,ptmxmode=0666,mode=0620,max=32,gid=5") != 0)
    return -1;
  return ::mount("../shm", "dev/shm", nullptr, MS_BIND, nullptr);
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

int enter_root(Child& child) noexcept {
  // The third lock: the kernel refuses user namespaces to a process whose root is not that of its
  // mount namespace, hence the wrapper around the real root. The browser tier needs them, and goes
  // without.
  const char* root = child.plan.nested_namespaces ? "/scratch/root" : "/scratch";
  if (::chdir(root) != 0) return -1;
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return -1;
  if (::umount2(".", MNT_DETACH) != 0) return -1;
  if (!child.plan.nested_namespaces && ::chroot("root") != 0) return -1;
  return ::chdir("/");
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
  if (!child.plan.import_root && set_limit(RLIMIT_FSIZE, child.plan.disk_bytes) != 0) return -1;
  ::umask(022);
  return 0;
}

// What the guest still does: start programs as other users in the inner namespace, signal them,
// look at them, and work on files in their name.
int drop_privileges(Child& child) noexcept {
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

// Last: from here on not even we can mount, and the workload inherits it.
int gate(Child& child) noexcept {
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &child.plan.gate));
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
      join_groups,     wait_for_ids, take_ids,        scratch_mount, scratch_folders,
      root_mount,      layer_mounts, writable_mounts, proc_mount,    kernel_settings,
      inner_namespace, proc_masks,   dev_mounts,      loopback,      enter_root,
      join_cpu_group,  limits,       drop_privileges, landlock,      gate};
  Child child{plan, outcome, {}};
  child.layer_mounts.fill(-1);
  std::uint64_t before = micros();
  for (std::uint32_t i = 0; i < kLaunchSteps; ++i) {
    if (kSteps[i](child) != 0) report_and_leave(plan, i, errno);
    std::uint64_t now = micros();
    outcome.step_micros[i] = static_cast<std::uint32_t>(now - before);
    before = now;
  }
}

}  // namespace asr
