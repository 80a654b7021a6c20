// The half of the child's code that builds the sandbox's file system. The same rules hold as in
// child.cpp: nothing is allocated, logged or thrown.
//
//   /scratch            tmpfs, dies with the sandbox
//     root              where the sandbox's root is mounted
//     lowerN            the environment's layers
//     shm tmp           memory for programs
//     disk              with a disk: the file system that outlives the sandbox
//     upper work …      what is written; in disk, if there is one

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/child.hpp"

namespace asr {

namespace {

int move_mount(int mount, int dir, const char* where) noexcept {
  unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (where[0] == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0U);
  return static_cast<int>(::syscall(SYS_move_mount, mount, "", dir, where, flags));
}

// "disk/upper" where there is a disk, "upper" otherwise.
Text written(const Child& child, const char* name) noexcept {
  Text path;
  if (child.plan.disk) path.add("disk/");
  path.add(name);
  return path;
}

int open_folder(int dir, const char* name) noexcept {
  return ::openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// On a disk the folders are there from last time, unless a program has put something else into
// their place: a link, above all, which a mount would follow to wherever it likes.
int make_folder(const Child& child, const LaunchFolder& folder) noexcept {
  Text path = written(child, folder.path);
  for (int tries = 0; ::mkdir(path.bytes, folder.mode) != 0; ++tries) {
    if (errno != EEXIST || !child.plan.disk || tries > 0) return -1;
    int there = open_folder(AT_FDCWD, path.bytes);
    if (there >= 0) return ::close(there);
    if (::unlink(path.bytes) != 0) return -1;
  }
  if (folder.id == 0 || child.plan.rootless) return 0;
  return ::chown(path.bytes, folder.id, folder.id);
}

// Calls `use` for each part of a path, as a text of its own, and stops at the first that fails.
template <class Use>
int for_each_part(const char* path, Use use) noexcept {
  while (*path == '/') ++path;
  while (*path != '\0') {
    Text part;
    for (; *path != '\0' && *path != '/'; ++path) {
      char one[] = {*path, '\0'};
      part.add(one);
    }
    while (*path == '/') ++path;
    if (use(part.bytes) != 0) return -1;
  }
  return 0;
}

// The folder at `path` below `top`, made where it is missing. A link on the way is an error: no
// mount is led astray.
int walk(int top, const char* path) noexcept {
  int at = open_folder(top, ".");
  if (at < 0) return -1;
  int failed = for_each_part(path, [&](const char* part) noexcept {
    if (::mkdirat(at, part, 0755) != 0 && errno != EEXIST && errno != EROFS) return -1;
    int next = open_folder(at, part);
    if (next < 0) return -1;
    ::close(at);
    at = next;
    return 0;
  });
  if (failed == 0) return at;
  int err = errno;
  ::close(at);
  errno = err;
  return -1;
}

int attach_layer(const Child& child, std::size_t i, const char* where) noexcept {
  if (child.layer_mounts[i] >= 0) return move_mount(child.layer_mounts[i], AT_FDCWD, where);
  return ::mount(child.plan.layers[i].stage_path, where, nullptr, MS_BIND | MS_REC, nullptr);
}

bool is_root_layer(const Child& child, std::size_t i) noexcept {
  return child.plan.layers[i].target[0] == '\0';
}

// Whether /workspace is a layer.
bool has_users_layer(const LaunchPlan& plan) noexcept {
  for (std::size_t i = 0; i < plan.layer_count; ++i)
    if (plan.layers[i].users) return true;
  return false;
}

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

// In the upper layer, where it hides the environment's, link or file. On a disk a program may have
// put a folder into its place: then that is what there is.
int write_resolv_conf(const Child& child) noexcept {
  if (child.plan.resolv_conf == nullptr) return 0;
  if (make_folder(child, {"upper/etc", 0755, 0}) != 0) return -1;
  Text path = written(child, "upper/etc/resolv.conf");
  if (::unlink(path.bytes) != 0 && errno != ENOENT) return errno == EISDIR ? 0 : -1;
  int file = ::open(path.bytes, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return -1;
  std::size_t size = ::strlen(child.plan.resolv_conf);
  ssize_t n = ::write(file, child.plan.resolv_conf, size);
  int err = errno;
  ::close(file);
  errno = err;
  return n == static_cast<ssize_t>(size) ? 0 : -1;
}

// Whether a folder, and nothing that only looks like one, is where something is to be mounted.
int check_folder(const char* path) noexcept {
  int there = open_folder(AT_FDCWD, path);
  return there < 0 ? -1 : ::close(there);
}

}  // namespace

int scratch_mount(Child& child) noexcept {
  if (::mount("scratch", "/scratch", "tmpfs", MS_NOSUID | MS_NODEV, child.plan.scratch_options) !=
      0)
    return -1;
  if (::chdir("/scratch") != 0) return -1;
  if (!child.plan.disk) return 0;
  if (::mkdir("disk", 0755) != 0) return -1;
  return move_mount(child.extra_mounts[0], AT_FDCWD, "disk");
}

int scratch_folders(Child& child) noexcept {
  if (::mkdir("root", 0755) != 0) return -1;
  if (child.plan.import_root) return 0;
  if (::mkdir("shm", 01777) != 0) return -1;
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    char name[] = "lower0";
    name[5] = static_cast<char>('0' + i);
    if (::mkdir(name, 0755) != 0) return -1;
  }
  if (make_folder(child, {"work", 0700, 0}) != 0) return -1;
  if (make_folder(child, {"upper", 0755, 0}) != 0) return -1;
  for (const LaunchFolder& folder : kLaunchFolders) {
    Text path;
    path.add("upper/");
    path.add(folder.path);
    if (make_folder(child, {path.bytes, folder.mode, folder.id}) != 0) return -1;
  }
  if (write_resolv_conf(child) != 0) return -1;
  for (std::size_t i = 0; i < child.plan.volume_count; ++i) {
    Text upper = written(child, "upper");
    int top = open_folder(AT_FDCWD, upper.bytes);
    if (top < 0) return -1;
    int place = walk(top, child.plan.volume_targets[i]);
    ::close(top);
    if (place < 0 || ::close(place) != 0) return -1;
  }
  if (!child.plan.read_only && !child.plan.disk) return 0;
  if (::mkdir("tmp", 01777) != 0) return -1;
  static constexpr LaunchFolder kWritable[] = {{"workspace", 0755, kUserId},
                                               {"home", 0755, kUserId}};
  for (const LaunchFolder& folder : kWritable)
    if (make_folder(child, folder) != 0) return -1;
  return 0;
}

int root_mount(Child& child) noexcept {
  if (child.plan.import_root) return attach_layer(child, 0, "root");
  unsigned long flags = MS_NOSUID | MS_NODEV | (child.plan.read_only ? MS_RDONLY : 0);
  Text upper = written(child, "upper");
  Text work = written(child, "work");
  return mount_overlay(child, "", "root", upper.bytes, work.bytes, flags);
}

int layer_mounts(Child& child) noexcept {
  if (child.plan.import_root) return 0;
  if (::chdir("root") != 0) return -1;
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    if (is_root_layer(child, i)) continue;
    const char* target = child.plan.layers[i].target;
    if (child.plan.disk && check_folder(target) != 0) return -1;
    bool users = child.plan.layers[i].users;
    if (child.plan.read_only && !users) {
      if (attach_layer(child, i, target) != 0) return -1;
      continue;
    }
    if (::chdir("..") != 0) return -1;
    char upper_name[] = "upper_0";
    char work_name[] = "work_0";
    upper_name[6] = work_name[5] = static_cast<char>('0' + i);
    if (make_folder(child, {upper_name, 0755, users ? kUserId : 0}) != 0) return -1;
    if (make_folder(child, {work_name, 0700, 0}) != 0) return -1;
    Text upper = written(child, upper_name);
    Text work = written(child, work_name);
    Text where;
    where.add("root/");
    where.add(target);
    if (mount_overlay(child, target, where.bytes, upper.bytes, work.bytes, MS_NOSUID | MS_NODEV) !=
        0)
      return -1;
    if (::chdir("root") != 0) return -1;
  }
  return 0;
}

int writable_mounts(Child& child) noexcept {
  if (child.plan.import_root || (!child.plan.read_only && !child.plan.disk)) return 0;
  Text workspace;
  workspace.add("../");
  workspace.add(written(child, "workspace").bytes);
  Text home;
  home.add("../");
  home.add(written(child, "home").bytes);
  if (::mount("../tmp", "tmp", nullptr, MS_BIND, nullptr) != 0) return -1;
  if (!has_users_layer(child.plan) &&
      ::mount(workspace.bytes, "workspace", nullptr, MS_BIND, nullptr) != 0)
    return -1;
  return ::mount(home.bytes, "home/user", nullptr, MS_BIND, nullptr);
}

int proc_mount(Child& child) noexcept {
  // An imported root has no /proc of ours to mount on; the scratch root serves as well.
  if (child.plan.import_root && (::mkdir("/scratch/proc", 0555) != 0 || ::chdir("/scratch") != 0))
    return -1;
  // hidepid: programs see those of their own user, and pid 1 is nobody's.
  return ::mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible");
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

// In the order given: a folder comes before what lies in it.
int volume_mounts(Child& child) noexcept {
  for (std::size_t i = 0; i < child.plan.volume_count; ++i) {
    int place = walk(AT_FDCWD, child.plan.volume_targets[i]);
    if (place < 0) return -1;
    int moved = move_mount(child.extra_mounts[(child.plan.disk ? 1 : 0) + i], place, "");
    int err = errno;
    ::close(place);
    errno = err;
    if (moved != 0) return -1;
  }
  return 0;
}

namespace {

// While these names still lead there. Each mount of its own: in the browser tier they come apart
// when the old root goes.
int keep_scratch(Child& child) noexcept {
  LaunchOutcome& outcome = child.outcome;
  outcome.lowers.fill(-1);
  if (child.plan.import_root) return 0;
  outcome.scratch = open_folder(AT_FDCWD, "/scratch");
  if (outcome.scratch < 0) return -1;
  if (child.plan.disk) {
    outcome.disk = open_folder(outcome.scratch, "disk");
    if (outcome.disk < 0) return -1;
  }
  for (std::size_t i = 0; i < child.plan.layer_count; ++i) {
    if (child.plan.read_only && !is_root_layer(child, i) && !child.plan.layers[i].users) continue;
    char name[] = "lower0";
    name[5] = static_cast<char>('0' + i);
    outcome.lowers[i] = open_folder(outcome.scratch, name);
    if (outcome.lowers[i] < 0) return -1;
  }
  return 0;
}

}  // namespace

int enter_root(Child& child) noexcept {
  if (keep_scratch(child) != 0) return -1;
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

}  // namespace asr
