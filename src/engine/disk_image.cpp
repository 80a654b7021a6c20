#include "engine/disk_image.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/id.hpp"
#include "base/scope_exit.hpp"
#include "launch/plan.hpp"
#include "os/detached_mount.hpp"
#include "os/loop.hpp"

namespace asr {

namespace {

// Below this ext4 has no room for its journal.
constexpr std::uint64_t kLeastImage = 8ULL << 20;
// ext4 sets 256 bytes aside for each possible file.
constexpr std::uint64_t kBytesPerInode = 8192;

Result<std::string> find_mkfs() {
  for (const char* path : {"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"})
    if (::access(path, X_OK) == 0) return std::string(path);
  return fail(Errc::unsupported, "there is no mkfs.ext4", "install e2fsprogs");
}

// Runs it on an empty file that nobody else has seen.
Result<void> run_mkfs(const std::vector<std::string>& words) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ScopeExit destroy([&] { ::posix_spawn_file_actions_destroy(&actions); });
  for (int fd : {0, 1, 2}) ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  char* const environment[] = {nullptr};
  int pid = -1;
  int err = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment);
  if (err != 0) return fail(errno_error(err, "start " + words[0]));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return fail_errno("wait for " + words[0]);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(Errc::os, words[0] + " failed with status " + std::to_string(status));
}

}  // namespace

Result<void> make_image(int dir, const std::string& name, std::uint64_t bytes, std::uint64_t inodes,
                        ImageOwner owner) {
  if (bytes < kLeastImage)
    return fail(Errc::invalid, "a disk of " + std::to_string(bytes) + " bytes is too small",
                "give at least " + std::to_string(kLeastImage));
  std::string mkfs = TRY(find_mkfs());
  std::string making = name + ".new-" + random_name(8);
  UniqueFd file(::openat(dir, making.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return fail_errno("create " + making);
  ScopeExit discard([&] { ::unlinkat(dir, making.c_str(), 0); });
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return fail_errno("make the disk");
  std::string id = owner == ImageOwner::root ? "0" : std::to_string(kUserId);
  std::string number = std::to_string(std::min(inodes, bytes / kBytesPerInode));
  // By descriptor: what has this name in a moment is of no matter.
  std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
  TRY(run_mkfs({mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-N", number, "-E",
                "nodiscard,root_owner=" + id + ":" + id, path}));
  if (::fsync(file.get()) != 0) return fail_errno("write the disk");
  // Not over another: somebody may have made it meanwhile, and use it.
  if (::renameat2(dir, making.c_str(), dir, name.c_str(), RENAME_NOREPLACE) != 0)
    return fail_errno("make the disk " + name);
  discard.dismiss();
  return {};
}

Result<DiskImage> DiskImage::open(UniqueFd file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("stat");
  if (!S_ISREG(info.st_mode)) return fail(Errc::invalid, "the disk is not a file");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Errc::conflict, "the disk is in use", "end the sandbox that has it first");
  // Whoever had it may be dead, and its mounts about to go.
  if (loop_of(file.get())) return fail(Errc::timeout, "the disk is still in use by one that ended");
  LoopDevice device = TRY(attach_loop(file.get()));
  DiskImage image;
  image.file_ = std::move(file);
  image.loop_ = device.number;
  image.device_ = std::move(device.fd);
  return image;
}

DiskImage DiskImage::adopt(UniqueFd file, unsigned loop, UniqueFd device) {
  DiskImage image;
  image.file_ = std::move(file);
  image.loop_ = loop;
  image.device_ = std::move(device);
  return image;
}

Result<UniqueFd> DiskImage::mount() const { return mount_ext4(loop_path(loop_)); }

bool DiskImage::is_mounted() const {
  auto device = loop_of(file_.get());
  return device && *device == loop_;
}

void DiskImage::unlock() noexcept { ::flock(file_.get(), LOCK_UN); }

}  // namespace asr
