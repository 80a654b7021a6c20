#include "zygote/stage.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "os/file.hpp"
#include "os/idmap.hpp"

namespace asr {

namespace {

Result<void> do_mount(const std::string& source, const std::string& target, const char* type,
                      unsigned long flags, const char* options = nullptr) {
  if (::mount(source.c_str(), target.c_str(), type, flags, options) != 0)
    return fail_errno("mount " + source + " on " + target);
  return {};
}

Result<void> make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) return fail_errno("mkdir " + path);
  return {};
}

Result<void> make_file(const std::string& path, unsigned mode) {
  UniqueFd fd(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode));
  if (!fd) return fail_errno("create " + path);
  return {};
}

Result<void> seal(const std::string& path) {
  return do_mount("none", path, nullptr,
                  MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

struct Device {
  const char* name;
  unsigned major;
  unsigned minor;
};
constexpr std::array<Device, 6> kDevices{{{"null", 1, 3},
                                          {"zero", 1, 5},
                                          {"full", 1, 7},
                                          {"random", 1, 8},
                                          {"urandom", 1, 9},
                                          {"tty", 5, 0}}};

// Devices are bound, not made: nothing in a user namespace may make them, and the host's are
// checked to be what their names say.
Result<void> build_dev() {
  TRY(make_dir("dev"));
  TRY(do_mount("dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,nr_inodes=64,mode=0755"));
  for (const Device& device : kDevices) {
    std::string source = std::string("/dev/") + device.name;
    struct stat info {};
    if (::lstat(source.c_str(), &info) != 0) return fail_errno("stat " + source);
    if (!S_ISCHR(info.st_mode) || info.st_rdev != makedev(device.major, device.minor))
      return fail(Errc::denied, source + " is not the device it should be");
    std::string target = std::string("dev/") + device.name;
    TRY(make_file(target, 0666));
    TRY(do_mount(source, target, nullptr, MS_BIND));
    TRY(do_mount("none", target, nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NOEXEC));
  }
  constexpr std::array<std::array<const char*, 2>, 5> kLinks{{{"/proc/self/fd", "dev/fd"},
                                                              {"/proc/self/fd/0", "dev/stdin"},
                                                              {"/proc/self/fd/1", "dev/stdout"},
                                                              {"/proc/self/fd/2", "dev/stderr"},
                                                              {"pts/ptmx", "dev/ptmx"}}};
  for (const auto& [target, name] : kLinks)
    if (::symlink(target, name) != 0) return fail_errno(std::string("symlink ") + name);
  TRY(make_dir("dev/pts"));
  TRY(make_dir("dev/shm"));
  return seal("dev");
}

Result<void> build_blank() {
  TRY(make_dir("blank"));
  TRY(do_mount("blank", "blank", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
               "size=64k,nr_inodes=8,mode=0755"));
  TRY(make_file("blank/file", 0444));
  TRY(make_dir("blank/folder"));
  return seal("blank");
}

// With all that is mounted below it. Sandboxes inherit the flags and cannot take them back.
Result<void> make_read_only(const std::string& path) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (::syscall(SYS_mount_setattr, AT_FDCWD, path.c_str(), AT_RECURSIVE, &attributes,
                sizeof attributes) != 0)
    return fail_errno("make " + path + " read-only");
  return {};
}

// A clone of the directory's mount alone, not of what is mounted below it: a layer is one file
// system. In a user namespace the kernel insists on the whole, because what is mounted there may
// hide something.
Result<void> bind_layers(const wire::Configure& configure, Stage& stage) {
  TRY(make_dir("layers"));
  stage.idmaps = !configure.rootless;
  for (std::size_t i = 0; i < configure.layers.size(); ++i) {
    std::string target = "layers/" + std::to_string(i);
    TRY(make_dir(target));
    unsigned long recursive = configure.rootless ? static_cast<unsigned long>(MS_REC) : 0;
    TRY(do_mount(configure.layers[i].source, target, nullptr, MS_BIND | recursive));
    if (!configure.import) TRY(make_read_only(target));
    bool users = configure.layers[i].users && !configure.rootless;
    bool mappable = (stage.idmaps || users) && can_idmap(target);
    if (users && !mappable)
      return fail(Errc::unsupported, "the file system of " + configure.layers[i].source +
                                         " cannot show its files under other owners");
    if (stage.idmaps) stage.idmaps = mappable;
  }
  return {};
}

// What a program may see of /proc beside processes: its own limits and names, and facts about the
// kernel that are the same for everybody and tell nothing of what others do. Anything else is
// covered, so that a kernel with new entries shows less, not more.
constexpr std::array<std::string_view, 20> kShown{
    "cpuinfo", "crypto",  "devices", "dma",         "execdomains", "filesystems", "loadavg",
    "locks",   "meminfo", "misc",    "mounts",      "net",         "self",        "stat",
    "swaps",   "sys",     "sysvipc", "thread-self", "uptime",      "version"};

bool is_shown(std::string_view name) {
  if (std::find(kShown.begin(), kShown.end(), name) != kShown.end()) return true;
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<void> choose_masks(Stage& stage) {
  std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return fail_errno("open /proc");
  while (dirent* entry = ::readdir(proc.get())) {
    std::string name = entry->d_name;
    if (name.starts_with('.') || is_shown(name)) continue;
    struct stat info {};
    if (::fstatat(::dirfd(proc.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISDIR(info.st_mode)) stage.masked_folders.push_back(name);
    // Files only their owner may open need no cover: the host's root has no id inside.
    else if (S_ISREG(info.st_mode) && (info.st_mode & 0066) != 0)
      stage.masked_files.push_back(name);
  }
  return {};
}

}  // namespace

Result<Stage> enter_stage(const wire::Configure& configure) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWUTS) != 0) return fail_errno("unshare");
  if (::sethostname("sandbox", 7) != 0) return fail_errno("sethostname");
  TRY(do_mount("none", "/", nullptr, MS_REC | MS_PRIVATE));
  TRY(do_mount("stage", configure.stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755"));
  if (::chdir(configure.stage.c_str()) != 0) return fail_errno("chdir " + configure.stage);

  Stage stage;
  TRY(make_dir("proc"));
  TRY(make_dir("scratch"));
  if (configure.rootless) {
    TRY(do_mount("/proc", "proc", nullptr, MS_BIND | MS_REC));
  } else {
    TRY(do_mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  }
  TRY(build_dev());
  TRY(build_blank());
  TRY(bind_layers(configure, stage));

  if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("pivot_root");
  if (::umount2(".", MNT_DETACH) != 0) return fail_errno("umount old root");
  if (::chdir("/") != 0) return fail_errno("chdir /");
  TRY(choose_masks(stage));
  return stage;
}

}  // namespace asr
