#include "guest/lower_folders.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>

namespace asr {

bool is_whiteout(const struct stat& info) noexcept {
  return S_ISCHR(info.st_mode) && info.st_rdev == 0;
}

bool is_opaque(int dir) noexcept {
  std::array<char, 4> value{};
  return ::fgetxattr(dir, "user.overlay.opaque", value.data(), value.size()) == 1 &&
         value[0] == 'y';
}

namespace {

// The other way of marking it, for layers that were packed by somebody without devices.
bool is_marked_whiteout(int dir, const char* name, const struct stat& info) noexcept {
  if (!S_ISREG(info.st_mode) || info.st_size != 0) return false;
  UniqueFd fd(::openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return fd && ::fgetxattr(fd.get(), "user.overlay.whiteout", nullptr, 0) >= 0;
}

bool is_opaque_in(int dir, const char* name) noexcept {
  UniqueFd fd(::openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return fd && is_opaque(fd.get());
}

}  // namespace

int LowerFolders::find(const char* name, struct stat& info) const noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    if (::fstatat(dirs_[i], name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (is_whiteout(info) || is_marked_whiteout(dirs_[i], name, info)) return -1;
    return dirs_[i];
  }
  return -1;
}

LowerFolders LowerFolders::below(const char* name) const noexcept {
  LowerFolders result;
  for (std::size_t i = 0; i < count_; ++i) {
    UniqueFd next(::openat(dirs_[i], name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next && (errno == ENOTDIR || errno == ELOOP)) break;  // It hides what lies below it.
    if (!next) continue;
    result.dirs_[result.count_] = next.get();
    result.owned_[result.count_++] = std::move(next);
    if (i + 1 < count_ && is_opaque_in(dirs_[i], name)) break;
  }
  return result;
}

}  // namespace asr
