#include "os/features.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <system_error>

#include "base/unique_fd.hpp"
#include "os/file.hpp"
#include "os/landlock.hpp"

namespace asr {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{3000};  // of each probe

std::string read_text(const std::string& path) {
  return read_small_file(AT_FDCWD, path).value_or(std::string());
}

std::string error_text(int err) { return std::generic_category().message(err); }

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return out;
}

// ---- Children ----
// Between fork() and _exit() they make system calls and nothing else: no allocation, no lock.

struct Context {        // Made ready before the fork.
  std::string uid_map;  // our own ids as root of a new user namespace
  std::string gid_map;
  int cgroup = -1;  // our own group in the unified hierarchy
};

struct Report {
  std::int32_t err = 0;
  std::int32_t step = 0;   // which part of the probe failed; 0 is the first
  std::int32_t value = 0;  // what else it found
};

using Probe = Report (*)(const Context&) noexcept;

struct Outcome {
  enum class Kind { reported, died, timeout };
  Kind kind = Kind::died;
  Report report;
  int signal = 0;  // that it died of

  bool ok() const { return kind == Kind::reported && report.err == 0; }
  std::string text() const {
    if (kind == Kind::timeout) return "it hung";
    if (kind == Kind::died && signal == SIGSYS) return "a seccomp filter killed the attempt";
    if (kind == Kind::died && signal == 0) return "no process could be made to try it";
    if (kind == Kind::died) return "the attempt died of signal " + std::to_string(signal);
    return error_text(report.err);
  }
};

bool readable(int fd, milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  for (;;) {
    auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    int count = ::poll(&ready, 1, static_cast<int>(std::max(left, milliseconds(0)).count()));
    if (count >= 0 || errno != EINTR) return count > 0;
  }
}

Outcome try_in_child(Probe probe, const Context& context) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGCHLD, SIG_DFL);  // Where the caller ignores it, nobody could be waited for.
    Report report = probe(context);
    (void)!::write(to.get(), &report, sizeof report);
    ::_exit(0);
  }
  to.reset();
  Outcome out;
  if (!readable(from.get(), kDeadline))
    out.kind = Outcome::Kind::timeout;
  else if (::read(from.get(), &out.report, sizeof out.report) == sizeof out.report)
    out.kind = Outcome::Kind::reported;
  ::kill(child, SIGKILL);  // Not reaped yet, so the number is still its own.
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (out.kind == Outcome::Kind::died && WIFSIGNALED(status)) out.signal = WTERMSIG(status);
  return out;
}

Report failed(int step) noexcept { return {.err = errno, .step = step, .value = 0}; }

long clone_child(std::uint64_t flags, int cgroup = -1) noexcept {
  clone_args arguments{};
  arguments.flags = flags;
  arguments.exit_signal = SIGCHLD;
  if (cgroup >= 0) arguments.cgroup = static_cast<std::uint64_t>(cgroup);
  long child = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

// What `body` reports from a grandchild in new namespaces.
template <class Body>
Report in_namespaces(std::uint64_t flags, int cgroup, Body body) noexcept {
  void* page =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return failed(0);
  auto* shared = new (page) Report{.err = EIO, .step = 0, .value = 0};  // Stays if it dies.
  const long child = clone_child(flags, cgroup);
  if (child < 0) return failed(0);
  if (child == 0) {
    *shared = body();
    ::_exit(0);
  }
  if (::waitpid(static_cast<pid_t>(child), nullptr, 0) < 0) return failed(0);
  return *shared;
}

bool write_file(const char* path, std::string_view text) noexcept {
  int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  int err = errno;
  ::close(fd);
  errno = err;
  return written;
}

bool become_root(const Context& context) noexcept {
  write_file("/proc/self/setgroups", "deny");  // Absent on old kernels.
  return write_file("/proc/self/uid_map", context.uid_map) &&
         write_file("/proc/self/gid_map", context.gid_map);
}

Report probe_clone3(const Context&) noexcept {
  return in_namespaces(0, -1, []() noexcept { return Report{}; });
}

Report probe_into_cgroup(const Context& context) noexcept {
  return in_namespaces(CLONE_INTO_CGROUP, context.cgroup, []() noexcept { return Report{}; });
}

Report probe_user_namespace(const Context& context) noexcept {
  return in_namespaces(CLONE_NEWUSER, -1, [&]() noexcept {
    if (!become_root(context)) return failed(1);
    // An LSM may let the namespace be made and then take every capability from it.
    return ::unshare(CLONE_NEWNS) == 0 ? Report{} : failed(2);
  });
}

// An empty tmpfs on a directory that every system has. In a mount namespace of our own.
const char* mount_scratch() noexcept {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return nullptr;
  for (const char* dir : {"/tmp", "/mnt", "/var"})
    if (::mount("asr-probe", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") == 0) return dir;
  return nullptr;
}

Report probe_overlay(const Context& context) noexcept {
  return in_namespaces(CLONE_NEWUSER | CLONE_NEWNS, -1, [&]() noexcept {
    if (!become_root(context)) return failed(0);
    const char* scratch = mount_scratch();
    if (scratch == nullptr || ::chdir(scratch) != 0) return failed(1);
    for (const char* dir : {"lower", "lower/gone", "upper", "work", "merged"})
      if (::mkdir(dir, 0755) != 0) return failed(1);
    if (::mount("overlay", "merged", "overlay", 0,
                "lowerdir=lower,upperdir=upper,workdir=work,userxattr") != 0)
      return failed(2);
    // A directory that hides one below it needs an xattr: without userxattr this is where it fails.
    bool works = ::rmdir("merged/gone") == 0 && ::mkdir("merged/gone", 0755) == 0;
    return works ? Report{} : failed(3);
  });
}

Report probe_proc(const Context& context) noexcept {
  return in_namespaces(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID, -1, [&]() noexcept {
    if (!become_root(context)) return failed(0);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed(1);
    return ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0
               ? Report{}
               : failed(2);
  });
}

// A user namespace by descriptor: that of a grandchild, which ends when `release` is closed.
int hold_user_namespace(const Context& context, int& release) noexcept {
  int ready[2], hold[2];
  if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(hold, O_CLOEXEC) != 0) return -1;
  const long holder = clone_child(CLONE_NEWUSER);
  if (holder < 0) return -1;
  char byte = 0;
  if (holder == 0) {
    ::close(hold[1]);
    if (become_root(context)) (void)!::write(ready[1], &byte, 1);
    ::close(ready[1]);
    (void)!::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  ::close(ready[1]);
  (void)!::read(ready[0], &byte, 1);
  release = hold[1];
  char path[32] = "/proc/";
  *std::to_chars(path + 6, path + 20, holder).ptr = '\0';
  int process = ::open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  return process < 0 ? -1 : ::openat(process, "ns/user", O_RDONLY | O_CLOEXEC);
}

// The mount stays detached: nothing appears anywhere.
Report idmap_tmpfs(int names) noexcept {
  const long draft = ::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
  if (draft < 0 || ::syscall(SYS_fsconfig, draft, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return failed(1);
  const long mount = ::syscall(SYS_fsmount, draft, FSMOUNT_CLOEXEC, 0);
  if (mount < 0) return failed(1);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<std::uint64_t>(names);
  long result =
      ::syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes);
  return result == 0 ? Report{} : failed(2);
}

Report probe_idmap(const Context& context) noexcept {
  int release = -1;
  const int names = hold_user_namespace(context, release);
  const Report report = names < 0 ? failed(0) : idmap_tmpfs(names);
  if (release >= 0) {
    ::close(release);
    ::wait(nullptr);  // The grandchild must not become somebody's orphan.
  }
  return report;
}

Report probe_seccomp(const Context&) noexcept {
  sock_filter allow{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = SECCOMP_RET_ALLOW};
  sock_fprog program{.len = 1, .filter = &allow};
  std::uint32_t kill_process = SECCOMP_RET_KILL_PROCESS;
  if (::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill_process) != 0) return failed(0);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed(1);
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? Report{} : failed(2);
}

Report probe_landlock(const Context&) noexcept {
  long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, 1);
  if (abi < 1) return failed(0);
  if (abi >= kLandlockScopes) {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (restrict_scopes(static_cast<int>(abi)) != 0) return failed(1);
  }
  return {.err = 0, .step = 0, .value = static_cast<std::int32_t>(abi)};
}

Report probe_openat2(const Context&) noexcept {
  open_how how{.flags = O_PATH | O_CLOEXEC, .mode = 0, .resolve = RESOLVE_IN_ROOT};
  return ::syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how) >= 0 ? Report{} : failed(0);
}

Report probe_pidfd(const Context&) noexcept {
  long fd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  if (fd < 0) return failed(0);
  return ::syscall(SYS_pidfd_send_signal, fd, 0, nullptr, 0) == 0 ? Report{} : failed(1);
}

Report probe_close_range(const Context&) noexcept {
  return ::syscall(SYS_close_range, ~0u, ~0u, 0) == 0 ? Report{} : failed(0);
}

// ---- Judgements ----

constexpr const char* kSeccompFix =
    "docker run --security-opt seccomp=unconfined lets a container do it.";

// Whether we run under a seccomp filter, which may refuse what the kernel could do.
bool filtered() {
  return read_text("/proc/self/status").find("\nSeccomp:\t0") == std::string::npos;
}

Feature feature(std::string name, const Outcome& outcome, std::string good, std::string fix) {
  if (outcome.ok()) return {std::move(name), FeatureState::ok, std::move(good), {}};
  return {std::move(name), FeatureState::missing, outcome.text(), std::move(fix)};
}

// The same for a call that every newer kernel has.
Feature call(std::string name, const Outcome& outcome, std::string good, std::string fix) {
  const int err = outcome.report.err;
  const bool refused = err == ENOSYS || err == EPERM || outcome.signal == SIGSYS;
  if (refused && filtered()) fix = kSeccompFix;
  return feature(std::move(name), outcome, std::move(good), std::move(fix));
}

Feature user_namespaces(const Outcome& outcome) {
  Feature out = feature("user_namespaces", outcome, "made one and mapped our ids into it", {});
  if (outcome.ok()) return out;
  struct Switch {
    const char* file;
    std::string_view off;
    const char* detail;
    const char* fix;
  };
  static constexpr Switch kSwitches[] = {
      {"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0",
       "sysctl -w user.max_user_namespaces=15000 allows them."},
      {"/proc/sys/kernel/unprivileged_userns_clone", "0",
       "kernel.unprivileged_userns_clone is 0: only root may make one",
       "sysctl -w kernel.unprivileged_userns_clone=1 allows them."},
      {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
       "AppArmor restricts them to programs with a profile",
       "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 lifts it for all programs, a "
       "profile with the rule userns for this one."},
  };
  const std::size_t count =
      ::geteuid() == 0 ? 1 : std::size(kSwitches);  // Only the first binds root.
  for (const Switch& one : std::span(kSwitches).first(count))
    if (read_text(one.file) == one.off) {
      out.detail = one.detail;
      out.fix = one.fix;
      return out;
    }
  const int err = outcome.report.err;
  if (err == EPERM && (!filtered() || looks_chrooted(read_text("/proc/self/mountinfo")))) {
    out.detail = "refused, as the kernel does in a chroot: this process seems to run in one";
    out.fix =
        "Start it outside of the chroot; bwrap --bind FOLDER / COMMAND enters a folder without.";
  } else if (err == ENOSPC || err == EUSERS) {
    out.detail = "the limit on their number is reached, here or in an outer namespace";
    out.fix = "sysctl -w user.max_user_namespaces=15000 raises the limit.";
  } else if (err == EINVAL) {
    out.detail = "the kernel was built without CONFIG_USER_NS";
    out.fix = "Boot a distribution kernel: apt-get install linux-image-amd64.";
  } else if (err == EPERM || err == ENOSYS) {
    out.detail = "refused by a seccomp filter, most likely that of a container";
    out.fix = kSeccompFix;
  }
  return out;
}

// Features that are tried in children.
void add_tried(KernelFeatures& out, const Context& context) {
  const std::string newer = "Boot a newer kernel: apt-get install linux-image-amd64.";
  auto attempt = [&](Probe probe) { return try_in_child(probe, context); };
  auto add = [&](Feature one) { out.features.push_back(std::move(one)); };

  add(call("clone3", attempt(probe_clone3), "works", newer));
  if (context.cgroup >= 0) {
    Outcome outcome = attempt(probe_into_cgroup);
    Feature one = call("clone_into_cgroup", outcome, "works", newer);
    if (outcome.report.err == EACCES || outcome.report.err == EPERM) {
      one.state = FeatureState::limited;
      one.detail = "the kernel has it, but our own cgroup is not ours to write";
      one.fix = "systemd-run --user --scope -p Delegate=yes COMMAND gives us a cgroup of our own.";
    }
    add(one);
  } else {
    add({"clone_into_cgroup", FeatureState::missing, "no unified cgroup hierarchy is mounted",
         "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified (after mkdir) adds it."});
  }

  const Outcome users = attempt(probe_user_namespace);
  add(user_namespaces(users));
  Outcome overlay = attempt(probe_overlay);
  add(feature(
      "overlay_in_userns", overlay, "works with userxattr",
      users.ok() ? newer + " Version 5.11 and later can." : "Needs user_namespaces first."));
  if (overlay.kind == Outcome::Kind::reported && overlay.report.step == 3) {
    out.features.back().state = FeatureState::limited;
    out.features.back().detail = "mounts, but cannot replace folders: " + overlay.text();
  }
  add(feature("proc_mount", attempt(probe_proc), "a new pid namespace can have its own /proc",
              users.ok() ? "Parts of this /proc are covered, as containers do; docker run "
                           "--security-opt systempaths=unconfined uncovers them."
                         : "Needs user_namespaces first."));
  if (::geteuid() == 0)
    add(feature("idmapped_mounts", attempt(probe_idmap), "work on tmpfs",
                users.ok() ? newer : "Needs user_namespaces first."));
  else
    add({"idmapped_mounts", FeatureState::missing, "need root",
         "Run as root, with sudo for example; without them folders are copied."});
  add(call("seccomp", attempt(probe_seccomp), "filters can be installed",
           "Boot a kernel with CONFIG_SECCOMP_FILTER: apt-get install linux-image-amd64."));

  Outcome landlock = attempt(probe_landlock);
  add(call("landlock", landlock, "ABI " + std::to_string(landlock.report.value),
           "Add landlock to the lsm= list on the kernel command line (Linux 5.13 and later)."));
  if (landlock.ok() && landlock.report.value < kLandlockScopes) {
    out.features.back().state = FeatureState::limited;
    out.features.back().detail += ": no scopes for signals and abstract sockets";
    out.features.back().fix = newer + " Version 6.12 brought scopes.";
  }
  add(call("openat2", attempt(probe_openat2), "works", newer));
  add(call("pidfd", attempt(probe_pidfd), "works", newer));
  add(call("close_range", attempt(probe_close_range), "works", newer));
}

// ---- Cgroups ----

struct Mount {
  std::string root, point, type, options;
};

std::string unescape(std::string_view text) {  // \040 and the like
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<Mount> parse_mountinfo(std::string_view mountinfo) {
  std::vector<Mount> out;
  for (std::string_view line : split(mountinfo, '\n')) {
    std::vector<std::string_view> words = split(line, ' ');
    auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    out.push_back(
        {unescape(words[3]), unescape(words[4]), std::string(dash[1]), std::string(dash[3])});
  }
  return out;
}

// The path of our own group in the hierarchy at `mount`; the mount point if it does not show it.
std::string group_path(const Mount& mount, std::string_view own) {
  if (mount.root != "/" && own.starts_with(mount.root)) own.remove_prefix(mount.root.size());
  if (own == "/" || own.empty() || own.starts_with("/..")) return mount.point;
  return mount.point + std::string(own);
}

// Our group for a v1 controller, or with an empty name for v2, from lines like "4:memory:/a/b".
std::optional<std::string_view> own_group(std::string_view self_cgroup,
                                          std::string_view controller) {
  for (std::string_view line : split(self_cgroup, '\n')) {
    std::size_t first = line.find(':');
    std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    std::vector<std::string_view> list = split(names, ',');
    if (controller.empty() ? names.empty()
                           : std::find(list.begin(), list.end(), controller) != list.end())
      return line.substr(second + 1);
  }
  return std::nullopt;
}

bool lists(std::string_view text, char separator, std::string_view word) {
  std::vector<std::string_view> words = split(text, separator);
  return std::find(words.begin(), words.end(), word) != words.end();
}

// `unified`: a cgroup2 hierarchy is mounted. `proc_cgroups`: name, v1 hierarchy, groups, enabled.
Feature missing_controller(const std::string& name, std::string_view proc_cgroups, bool unified) {
  const std::string v1 = name == "io" ? "blkio" : name;
  const std::string dir = "/sys/fs/cgroup/" + v1;
  Feature out{
      .name = "cgroup_" + name,
      .state = FeatureState::missing,
      .detail = "in no mounted hierarchy",
      .fix = "mkdir -p " + dir + " && mount -t cgroup -o " + v1 + " cgroup " + dir + " mounts it."};
  for (std::string_view line : split(proc_cgroups, '\n')) {
    const std::vector<std::string_view> words = split(line, '\t');
    if (words.size() != 4 || words[0] != v1) continue;
    if (words[3] == "0") {
      out.detail = "switched off on the kernel command line";
      out.fix = "Boot with cgroup_enable=" + v1 + " on the kernel command line.";
    } else if (words[1] == "0" && unified) {
      out.detail = "not delegated to our cgroup";
      out.fix =
          "systemctl edit user@.service, with Delegate=cpu io memory pids below [Service], "
          "delegates it from the next login on.";
    }
  }
  return out;
}

Feature found_controller(const CgroupController& one) {
  Feature out{.name = "cgroup_" + one.name,
              .state = FeatureState::ok,
              .detail = std::string(to_string(one.version)) + " at " + one.path,
              .fix = {}};
  if (one.writable) return out;
  out.state = FeatureState::limited;
  out.detail += ", not writable for us";
  out.fix = one.version == CgroupController::Version::v2
                ? "systemd-run --user --scope -p Delegate=yes COMMAND gives us a cgroup of our own."
                : "Run as root, or chown " + one.path + " to this user.";
  return out;
}

void add_controllers(KernelFeatures& out) {
  using Version = CgroupController::Version;
  out.controllers = find_controllers(read_text("/proc/self/mountinfo"),
                                     read_text("/proc/self/cgroup"), read_text);
  const std::string proc_cgroups = read_text("/proc/cgroups");
  const bool unified = out.controller("freezer")->version == Version::v2;
  for (CgroupController& one : out.controllers) {
    // Needs no trying: making a group is refused by owner, mode and mount alone.
    one.writable = one.version != Version::none &&
                   ::faccessat(AT_FDCWD, one.path.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
    out.features.push_back(one.version == Version::none
                               ? missing_controller(one.name, proc_cgroups, unified)
                               : found_controller(one));
  }
}

// ---- Facts that only need to be read ----

Feature core_pattern() {
  const std::string pattern = read_text("/proc/sys/kernel/core_pattern");
  if (!pattern.starts_with('|'))
    return {"core_pattern", FeatureState::ok, "core files go to " + pattern, {}};
  return {"core_pattern", FeatureState::limited,
          "a crash inside a sandbox starts a program of the host: " + pattern.substr(1),
          "sysctl -w kernel.core_pattern=core writes a file instead."};
}

Feature swap(const KernelFeatures& so_far) {
  if (split(read_text("/proc/swaps"), '\n').size() < 2)
    return {"swap", FeatureState::ok, "none", {}};
  const CgroupController* memory = so_far.controller("memory");
  bool counted = memory->version == CgroupController::Version::v2 ||
                 ::access((memory->path + "/memory.memsw.limit_in_bytes").c_str(), F_OK) == 0;
  if (counted) return {"swap", FeatureState::ok, "present, and limited like memory", {}};
  return {"swap", FeatureState::limited, "present, and not counted in memory limits",
          "swapoff -a switches it off; swapaccount=1 on the kernel command line counts it."};
}

Feature pid_max() {
  constexpr std::uint64_t kFew = 32768;
  std::uint64_t value = read_number(AT_FDCWD, "/proc/sys/kernel/pid_max").value_or(0);
  Feature out{
      "pid_max", FeatureState::ok, std::to_string(value) + " processes on this machine", {}};
  if (value <= kFew) {
    out.state = FeatureState::limited;
    out.fix = "sysctl -w kernel.pid_max=4194304 makes room for more sandboxes.";
  }
  return out;
}

Feature cpu_vulnerabilities() {
  std::string open;
  int known = 0;
  std::error_code error;
  std::filesystem::directory_iterator files("/sys/devices/system/cpu/vulnerabilities", error), end;
  for (; !error && files != end; files.increment(error)) {
    ++known;
    if (read_text(files->path()).starts_with("Vulnerable"))
      open += (open.empty() ? "" : ", ") + files->path().filename().string();
  }
  if (known == 0)
    return {"cpu_vulnerabilities", FeatureState::limited, "the kernel does not tell", {}};
  if (open.empty())
    return {
        "cpu_vulnerabilities", FeatureState::ok, std::to_string(known) + " known, none open", {}};
  return {"cpu_vulnerabilities", FeatureState::limited, "open to side channels: " + open,
          "Update the microcode (apt-get install intel-microcode amd64-microcode) and boot without "
          "mitigations=off; in a virtual machine the host must."};
}

Feature merged_usr() {
  for (const char* link : {"/bin", "/sbin", "/lib"}) {
    std::error_code error;
    if (!std::filesystem::is_symlink(link, error))
      return {
          "merged_usr", FeatureState::limited, std::string(link) + " is not a link into /usr",
          "apt-get install usrmerge moves it; or give sandboxes a folder or tarball of their own."};
  }
  return {"merged_usr", FeatureState::ok, "/bin, /sbin and /lib are links into /usr", {}};
}

// Ranges of ids that newuidmap(1) may give to a user without privileges.
Feature subordinate_ids() {
  if (::geteuid() == 0)
    return {"subordinate_ids", FeatureState::ok, "not needed: root maps any range", {}};
  const passwd* user = ::getpwuid(::geteuid());
  const std::string id = std::to_string(::geteuid());
  const std::string name = user == nullptr ? id : user->pw_name;
  bool granted = true;
  for (const char* file : {"/etc/subuid", "/etc/subgid"}) {
    const std::string text = "\n" + read_text(file);
    granted = granted && (text.find("\n" + name + ":") != std::string::npos ||
                          text.find("\n" + id + ":") != std::string::npos);
  }
  if (::access("/usr/bin/newuidmap", X_OK) != 0 || ::access("/usr/bin/newgidmap", X_OK) != 0)
    return {"subordinate_ids", FeatureState::missing, "newuidmap is not installed",
            "apt-get install uidmap installs it."};
  if (!granted)
    return {
        "subordinate_ids", FeatureState::missing, "no range for " + name + " in /etc/subuid",
        "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + name + " grants one."};
  return {"subordinate_ids", FeatureState::ok, "newuidmap, and a range for " + name, {}};
}

}  // namespace

std::string_view to_string(FeatureState state) noexcept {
  switch (state) {
    case FeatureState::ok:
      return "ok";
    case FeatureState::limited:
      return "limited";
    case FeatureState::missing:
      break;
  }
  return "missing";
}

std::string_view to_string(CgroupController::Version version) noexcept {
  switch (version) {
    case CgroupController::Version::v1:
      return "v1";
    case CgroupController::Version::v2:
      return "v2";
    case CgroupController::Version::none:
      break;
  }
  return "none";
}

const Feature* KernelFeatures::find(std::string_view name) const noexcept {
  for (const Feature& one : features)
    if (one.name == name) return &one;
  return nullptr;
}

const CgroupController* KernelFeatures::controller(std::string_view name) const noexcept {
  for (const CgroupController& one : controllers)
    if (one.name == name) return &one;
  return nullptr;
}

std::vector<CgroupController> find_controllers(
    std::string_view mountinfo, std::string_view self_cgroup,
    const std::function<std::string(const std::string&)>& read) {
  using Version = CgroupController::Version;
  const std::vector<Mount> mounts = parse_mountinfo(mountinfo);
  std::vector<CgroupController> out;
  for (std::string name : {"memory", "pids", "cpu", "io", "freezer"}) {
    CgroupController one{.name = name, .version = Version::none, .path = {}, .writable = false};
    for (const Mount& mount : mounts) {
      const bool unified = mount.type == "cgroup2";
      const std::string wanted = unified ? "" : name == "io" ? "blkio" : name;
      if (!unified && (mount.type != "cgroup" || !lists(mount.options, ',', wanted))) continue;
      const std::string path = group_path(mount, own_group(self_cgroup, wanted).value_or("/"));
      // Freezing is no controller there: every group but the root can.
      if (unified && name != "freezer" && !lists(read(path + "/cgroup.controllers"), ' ', name))
        continue;
      if (one.version == Version::v2) continue;  // The better one, and the first of several mounts.
      if (one.version == Version::v1 && !unified) continue;
      one.version = unified ? Version::v2 : Version::v1;
      one.path = path;
    }
    out.push_back(std::move(one));
  }
  return out;
}

// A namespace always shows its root mount, but to a process whose root lies elsewhere.
bool looks_chrooted(std::string_view mountinfo) {
  const std::vector<Mount> mounts = parse_mountinfo(mountinfo);
  return std::none_of(mounts.begin(), mounts.end(),
                      [](const Mount& mount) { return mount.point == "/"; });
}

KernelFeatures probe_features() {
  KernelFeatures out;
  utsname name{};
  ::uname(&name);
  out.release = name.release;
  out.features.push_back({"kernel",
                          FeatureState::ok,
                          std::string(name.sysname) + " " + name.release + " " + name.machine,
                          {}});
  add_controllers(out);

  Context context{.uid_map = "0 " + std::to_string(::geteuid()) + " 1",
                  .gid_map = "0 " + std::to_string(::getegid()) + " 1"};
  UniqueFd own;  // The freezer is found wherever a unified hierarchy is.
  if (const CgroupController* freezer = out.controller("freezer");
      freezer->version == CgroupController::Version::v2)
    own = UniqueFd(::open(freezer->path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  context.cgroup = own.get();
  add_tried(out, context);

  for (Feature one : {core_pattern(), swap(out), pid_max(), cpu_vulnerabilities(), merged_usr(),
                      subordinate_ids()})
    out.features.push_back(std::move(one));
  return out;
}

}  // namespace asr
