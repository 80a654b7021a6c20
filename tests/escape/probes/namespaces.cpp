// E07, E09-E11: namespaces, mounts and the root directory.
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

// glibc's own header and the kernel's cannot be included together.
extern "C" int mount(const char*, const char*, const char*, unsigned long, const void*) noexcept;
extern "C" int umount2(const char*, int) noexcept;

namespace probes {

namespace {

constexpr int kDetach = 2;  // MNT_DETACH

constexpr std::pair<unsigned long, const char*> kNamespaces[] = {
    {CLONE_NEWUSER, "NEWUSER"},     {CLONE_NEWNS, "NEWNS"},     {CLONE_NEWNET, "NEWNET"},
    {CLONE_NEWPID, "NEWPID"},       {CLONE_NEWIPC, "NEWIPC"},   {CLONE_NEWUTS, "NEWUTS"},
    {CLONE_NEWCGROUP, "NEWCGROUP"}, {CLONE_NEWTIME, "NEWTIME"},
};

Outcome cloned(unsigned long flags) {
  long child = ::syscall(SYS_clone, flags | SIGCHLD, 0UL, 0UL, 0UL, 0UL);
  if (child == 0) ::_exit(0);
  Outcome outcome = from(child);
  if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
  return outcome;
}

Outcome cloned3(unsigned long flags) {
  clone_args args{};
  args.flags = flags;
  args.exit_signal = SIGCHLD;
  long child = ::syscall(SYS_clone3, &args, sizeof(args));
  if (child == 0) ::_exit(0);
  Outcome outcome = from(child);
  if (child > 0) ::waitpid(static_cast<pid_t>(child), nullptr, 0);
  return outcome;
}

void e09_namespaces(Probe& probe) {
  for (auto [flag, name] : kNamespaces) {
    std::string flags = std::string("(CLONE_") + name + ")";
    probe.attempt("unshare" + flags, [f = flag] { return from(::unshare(static_cast<int>(f))); });
    if (flag != CLONE_NEWTIME) probe.attempt("clone" + flags, [f = flag] { return cloned(f); });
    probe.attempt("clone3" + flags, [f = flag] { return cloned3(f); });
  }
  probe.attempt("unshare(CLONE_NEWUSER|CLONE_NEWNS)",
                [] { return from(::unshare(CLONE_NEWUSER | CLONE_NEWNS)); });
  probe.attempt("clone(CLONE_NEWUSER|CLONE_NEWPID|CLONE_NEWNET)",
                [] { return cloned(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET); });
  probe.attempt("clone3 at all", [] { return cloned3(0); });
  for (const char* name : {"mnt", "net", "ipc", "uts", "pid", "cgroup"}) {
    for (const char* whose : {"self", "1"}) {
      std::string path = std::string("/proc/") + whose + "/ns/" + name;
      probe.attempt("setns(" + path + ")", [&] {
        int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return from(-1, "open");
        return from(::setns(fd, 0));
      });
    }
  }
  probe.attempt("setns(pidfd of 1)", [] {
    int fd = static_cast<int>(::syscall(SYS_pidfd_open, 1, 0));
    if (fd < 0) return from(-1, "pidfd_open");
    return from(::setns(fd, CLONE_NEWUTS | CLONE_NEWIPC));
  });
}

// In the browser's tier nested namespaces are allowed; what must not follow from them is tried
// here.
void e09_nested(Probe& probe) {
  probe.needed("unshare(CLONE_NEWUSER)", [] { return from(::unshare(CLONE_NEWUSER)); });
  auto nested = [&](const std::string& what, const std::function<Outcome()>& attack,
                    const std::string& unprovable = "") {
    probe.attempt("in a nested namespace: " + what, Unprovable{unprovable}, [&] {
      std::string uid = std::to_string(::getuid());
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID) != 0 &&
          ::unshare(CLONE_NEWUSER) != 0)
        return from(-1, "unshare");
      (void)write_all("/proc/self/setgroups", "deny");
      (void)write_all("/proc/self/uid_map", "0 " + uid + " 1");
      return attack();
    });
  };
  nested("mount a tmpfs", [] {
    (void)::unshare(CLONE_NEWNS);
    return from(::mount("t", "/tmp", "tmpfs", 0, nullptr));
  });
  nested("unshare(CLONE_NEWNS)", [] { return from(::unshare(CLONE_NEWNS)); });
  nested("an nftables socket", [] { return from(::syscall(SYS_socket, 16, 3, 12)); });
  nested("a packet socket", [] { return from(::syscall(SYS_socket, 17, 3, 0)); });
  nested("kill(1, 0)", [] { return from(::kill(1, 0)); });
  nested(
      "mknod of a device",
      [] { return from(::mknod("/tmp/asr-dev", S_IFCHR | 0600, makedev(1, 1))); },
      "the kernel refuses it in every namespace but the first");
}

// Outside, what an attempt does to the mount table stays with it.
void own_mounts(const Probe& probe) {
  if (probe.outside()) (void)::unshare(CLONE_NEWNS);
}

void e07_mounts(Probe& probe) {
  std::string place = probe.scratch() + "/asr-mount";
  ::mkdir(place.c_str(), 0755);
  struct Type {
    const char* type;
    const char* options;
  };
  std::string known = read_all("/proc/filesystems");
  for (const Type& one : {Type{"tmpfs", ""},
                          {"ramfs", ""},
                          {"proc", ""},
                          {"sysfs", ""},
                          {"devpts", "newinstance"},
                          {"mqueue", ""},
                          {"devtmpfs", ""},
                          {"debugfs", ""},
                          {"tracefs", ""},
                          {"securityfs", ""},
                          {"bpf", ""},
                          {"binfmt_misc", ""},
                          {"cgroup", "memory"},
                          {"cgroup2", ""},
                          {"hugetlbfs", ""},
                          {"pstore", ""}}) {
    bool lacking = probe.outside() && known.find(one.type) == std::string::npos;
    probe.attempt(std::string("mount ") + one.type,
                  Unprovable{lacking ? "this kernel has no such file system" : ""}, [&] {
                    own_mounts(probe);
                    return from(::mount("asr", place.c_str(), one.type, 0, one.options));
                  });
  }
  probe.attempt("mount overlay", [&] {
    own_mounts(probe);
    std::string base = probe.scratch() + "/asr-ovl";
    for (const char* part : {"", "/l", "/u", "/w"}) ::mkdir((base + part).c_str(), 0755);
    std::string options =
        "userxattr,lowerdir=" + base + "/l,upperdir=" + base + "/u,workdir=" + base + "/w";
    return from(::mount("asr", place.c_str(), "overlay", 0, options.c_str()));
  });
  probe.attempt("bind / somewhere else", [&] {
    own_mounts(probe);
    return from(::mount("/", place.c_str(), nullptr, 1UL << 12 /* MS_BIND */, nullptr));
  });
  probe.attempt("fsopen(tmpfs)", [] { return from(::syscall(SYS_fsopen, "tmpfs", 0)); });
  probe.attempt("fspick(/)", [] { return from(::syscall(SYS_fspick, AT_FDCWD, "/", 0)); });
  probe.attempt("open_tree(/, OPEN_TREE_CLONE)",
                [] { return from(::syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE)); });
  probe.attempt("open_tree_attr(/)", Unprovable{"only newer kernels have it"},
                [] { return from(::syscall(467, AT_FDCWD, "/", OPEN_TREE_CLONE, nullptr, 0)); });
  probe.attempt("move_mount", [] { return reached(::syscall(SYS_move_mount, -1, "", -1, "", 4)); });
  probe.attempt("fsmount", [] { return reached(::syscall(SYS_fsmount, -1, 0, 0)); });
  probe.attempt("fsconfig",
                [] { return reached(::syscall(SYS_fsconfig, -1, 0, nullptr, nullptr, 0)); });
  probe.attempt("mount_setattr", [&] {
    own_mounts(probe);
    mount_attr attr{};
    attr.attr_set = MOUNT_ATTR_NOSUID;
    return from(::syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof(attr)));
  });
  probe.attempt("list /sys", [] { return when(!entries("/sys").empty()); });
  for (const char* path : {"/sys/class/dmi/id/product_name", "/sys/devices/system/cpu/online",
                           "/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs"})
    probe.attempt(std::string("read ") + path,
                  Unprovable{probe.outside() && ::access(path, F_OK) != 0
                                 ? std::string("this machine has no ") + path
                                 : ""},
                  [&] { return when(::access(path, F_OK) == 0); });
}

void e10_mount_tricks(Probe& probe) {
  std::string place = probe.scratch() + "/asr-trick";
  ::mkdir(place.c_str(), 0755);
  auto trick = [&](const std::string& what, const std::function<long()>& call,
                   const std::string& unprovable = "") {
    probe.attempt(what, Unprovable{unprovable}, [&] {
      own_mounts(probe);
      return from(call());
    });
  };
  constexpr unsigned long kBind = 1UL << 12, kRemount = 1UL << 5, kShared = 1UL << 20,
                          kSlave = 1UL << 19, kRec = 1UL << 14, kMove = 1UL << 13, kReadOnly = 1;
  trick("remount / writable",
        [] { return ::mount(nullptr, "/", nullptr, kRemount | kBind, nullptr); });
  trick("remount /proc writable",
        [] { return ::mount(nullptr, "/proc", nullptr, kRemount | kBind, nullptr); });
  trick("make / shared", [] { return ::mount(nullptr, "/", nullptr, kShared | kRec, nullptr); });
  trick("make / a slave", [] { return ::mount(nullptr, "/", nullptr, kSlave | kRec, nullptr); });
  trick("bind over /proc/self/status", [&] {
    (void)write_all(place + "/file", "x");
    return ::mount((place + "/file").c_str(), "/proc/self/status", nullptr, kBind, nullptr);
  });
  trick("bind /proc over a directory",
        [&] { return ::mount("/proc", place.c_str(), nullptr, kBind | kRec, nullptr); });
  trick("move /proc", [&] { return ::mount("/proc", place.c_str(), nullptr, kMove, nullptr); });
  trick("remount / read-only",
        [] { return ::mount(nullptr, "/", nullptr, kRemount | kBind | kReadOnly, nullptr); });
  trick("umount /proc", [] { return ::umount2("/proc", kDetach); });
  trick(
      "umount /", [] { return ::umount2("/", kDetach); }, "the first mount of a namespace stays");
  for (const char* mask : {"/proc/sys", "/proc/kcore", "/proc/keys", "/proc/acpi",
                           "/proc/timer_list", "/dev/null", "/dev"})
    trick(
        std::string("uncover ") + mask, [&] { return ::umount2(mask, kDetach); },
        std::string_view(mask) == "/dev" ? "" : "nothing covers it outside");
  trick("pivot_root", [&] {
    if (::mount("t", place.c_str(), "tmpfs", 0, nullptr) != 0 || ::chdir(place.c_str()) != 0)
      return -1L;
    return ::syscall(SYS_pivot_root, ".", ".");
  });
  probe.attempt("a mount that others share, in the mount table",
                Unprovable{"the box has made its mounts private"}, [] {
                  std::string table = read_all("/proc/self/mountinfo");
                  return when(table.find(" shared:") != std::string::npos ||
                              table.find(" master:") != std::string::npos);
                });
}

// Outside: a plain chroot, which is what must not be the only wall.
bool enter_jail(const Probe& probe) {
  if (!probe.outside()) return true;
  std::string jail = probe.scratch() + "/jail-" + std::to_string(::getpid());
  return ::unshare(CLONE_NEWNS) == 0 && ::mkdir(jail.c_str(), 0755) == 0 &&
         ::mkdir((jail + "/proc").c_str(), 0755) == 0 &&
         ::mkdir((jail + "/tmp").c_str(), 01777) == 0 &&
         ::mount("proc", (jail + "/proc").c_str(), "proc", 0, nullptr) == 0 &&
         ::chroot(jail.c_str()) == 0 && ::chdir("/") == 0;
}

// Arguments: the path of a file that only the host has, and what is in it.
void e11_root(Probe& probe) {
  std::string path = probe.arg(0, "/etc/hostname");
  std::string secret = probe.arg(1);
  auto holds = [&](const std::string& from_where) {
    std::string text = read_all(from_where + path);
    return !text.empty() && text.find(secret) != std::string::npos;
  };
  auto climb = [&] {
    for (int i = 0; i < 64; ++i) (void)::chdir("..");
    (void)::chroot(".");
    return when(holds("") || holds("."));
  };
  probe.attempt("chroot further in and climb out", [&] {
    if (!enter_jail(probe)) return from(-1, "jail");
    std::string below = "/tmp/asr-x" + std::to_string(::getpid());
    ::mkdir(below.c_str(), 0755);
    if (::chroot(below.c_str()) != 0) return from(-1, "chroot");
    return climb();
  });
  probe.attempt("keep a directory open over a chroot and climb out from it", [&] {
    if (!enter_jail(probe)) return from(-1, "jail");
    int kept = ::open("/", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    std::string below = "/tmp/asr-y" + std::to_string(::getpid());
    ::mkdir(below.c_str(), 0755);
    if (::chroot(below.c_str()) != 0) return from(-1, "chroot");
    if (::fchdir(kept) != 0) return from(-1, "fchdir");
    return climb();
  });
  probe.attempt("look through the root or directory of another process", [&] {
    if (!enter_jail(probe)) return from(-1, "jail");
    for (int pid : process_ids()) {
      std::string proc = "/proc/" + std::to_string(pid);
      if (holds(proc + "/root") || holds(proc + "/cwd/../../../../../../../../../.."))
        return when(true, std::to_string(pid));
    }
    return when(false);
  });
  probe.attempt("climb out of the working directory it was given",
                Unprovable{"the box gives it none from outside"}, [&] {
                  std::string up;
                  for (int i = 0; i < 32; ++i) up += "../";
                  return when(holds(up));
                });
  probe.attempt("a working directory that cannot be reached",
                Unprovable{"the box gives it none from outside"}, [] {
                  char where[4096] = {};
                  long size = ::syscall(SYS_getcwd, where, sizeof(where));
                  return when(size < 0 || where[0] != '/', where);
                });
  probe.note("the root directory", [] {
    struct stat root {
    }, up{};
    ::stat("/", &root);
    ::stat("/..", &up);
    return when(root.st_ino == up.st_ino && root.st_dev == up.st_dev,
                "inode " + std::to_string(root.st_ino));
  });
}

}  // namespace

std::span<const Case> namespace_cases() {
  static constexpr Case cases[] = {
      {"E07", e07_mounts, {}},       {"E09", e09_namespaces, {}}, {"E09-nested", e09_nested, {}},
      {"E10", e10_mount_tricks, {}}, {"E11", e11_root, {}},
  };
  return cases;
}

}  // namespace probes
