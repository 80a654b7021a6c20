#include "guest/packer.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

#include "wire/saved_files.hpp"

namespace asr {

namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr std::size_t kZeros = 256 << 20;
// Holes smaller than this are cheaper to copy than to describe.
constexpr std::uint64_t kSmallHole = 32 * 1024;
constexpr std::size_t kMostTarget = 4096;
constexpr int kBlock = 512;  // what st_blocks counts

constexpr std::string_view kMark = "user.overlay.";
constexpr std::string_view kEscaped = "user.overlay.overlay.";

bool is_packed(const struct stat& info, Packer::Detail detail) {
  return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode) ||
         (detail == Packer::Detail::saving && S_ISFIFO(info.st_mode));
}

// An attribute as programs see it, or "" if they do not. An overlay hides its own marks, and keeps
// those that programs set under the same names apart by saying their prefix twice.
std::string visible_name(std::string_view name, Packer::Origin origin) {
  if (name == "system.posix_acl_access" || name == "system.posix_acl_default")
    return std::string(name);
  if (!name.starts_with("user.")) return {};
  if (!origin.overlay || !name.starts_with(kMark)) return std::string(name);
  if (!name.starts_with(kEscaped)) return {};
  return std::string(kMark).append(name.substr(kEscaped.size()));
}

}  // namespace

Packer::Packer(archive* out, Detail detail)
    : out_(out), detail_(detail), entry_(::archive_entry_new()) {}

Packer::~Packer() {
  if (zeros_ != nullptr) ::munmap(zeros_, kZeros);
}

void Packer::describe(const struct stat& info, const std::string& path) {
  archive_entry* entry = entry_.get();
  ::archive_entry_clear(entry);
  ::archive_entry_set_pathname(entry, path.c_str());
  ::archive_entry_set_filetype(entry, info.st_mode & S_IFMT);
  ::archive_entry_set_perm(entry, info.st_mode & 07777);
  ::archive_entry_set_uid(entry, info.st_uid);
  ::archive_entry_set_gid(entry, info.st_gid);
  ::archive_entry_set_mtime(entry, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  ::archive_entry_set_size(entry, S_ISREG(info.st_mode) ? info.st_size : 0);
}

// False if it is no link any more.
Result<bool> Packer::add_target(int dir, const char* name) {
  std::array<char, kMostTarget + 1> target;
  ssize_t n = ::readlinkat(dir, name, target.data(), kMostTarget);
  if (n < 0) return false;
  target[static_cast<std::size_t>(n)] = '\0';
  ::archive_entry_set_symlink(entry_.get(), target.data());
  return true;
}

// Whether it is another name of a file that is in the stream already.
bool Packer::is_known_link(const struct stat& info, const std::string& path) {
  if (!S_ISREG(info.st_mode) || info.st_nlink < 2) return false;
  auto [first, is_first] = links_.try_emplace({info.st_dev, info.st_ino}, path);
  if (is_first) return false;
  ::archive_entry_set_hardlink(entry_.get(), first->second.c_str());
  ::archive_entry_set_size(entry_.get(), 0);
  return true;
}

void Packer::add_attributes(int fd, Origin origin) {
  std::array<char, 4096> small;
  ssize_t size = ::flistxattr(fd, small.data(), small.size());
  std::string names;
  if (size > 0) {
    names.assign(small.data(), static_cast<std::size_t>(size));
  } else if (size < 0 && errno == ERANGE) {
    names.resize(XATTR_LIST_MAX);
    size = ::flistxattr(fd, names.data(), names.size());
    names.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  }
  std::string value;
  for (std::size_t at = 0; at < names.size(); at += std::strlen(&names[at]) + 1) {
    std::string visible = visible_name(&names[at], origin);
    if (visible.empty()) continue;
    value.resize(XATTR_SIZE_MAX);
    ssize_t n = ::fgetxattr(fd, &names[at], value.data(), value.size());
    if (n < 0) continue;  // Removed meanwhile.
    ::archive_entry_xattr_add_entry(entry_.get(), visible.c_str(), value.data(),
                                    static_cast<std::size_t>(n));
  }
  if (origin.replaces) ::archive_entry_xattr_add_entry(entry_.get(), wire::kSavedReplaces, "y", 1);
}

Result<void> Packer::write_header(const std::string& path) {
  if (::archive_write_header(out_, entry_.get()) < ARCHIVE_WARN)
    return fail(archive_error(out_, path));
  ++entries_;
  return {};
}

Result<UniqueFd> Packer::add(int dir, const char* name, const std::string& path, Origin origin) {
  struct stat info {};
  if (::fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return UniqueFd();
  if (!is_packed(info, detail_)) return UniqueFd();
  UniqueFd fd;
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) {
    fd = UniqueFd(::openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd && errno != ENOENT && errno != ELOOP) return fail_errno(path);
    if (!fd) return UniqueFd();
    if (::fstat(fd.get(), &info) != 0) return fail_errno(path);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return UniqueFd();
  }
  describe(info, path);
  if (S_ISLNK(info.st_mode) && !TRY(add_target(dir, name))) return UniqueFd();
  bool known = is_known_link(info, path);
  if (detail_ == Detail::saving && fd && !known) add_attributes(fd.get(), origin);
  if (S_ISREG(info.st_mode) && !known && info.st_size > 0) {
    TRY(write_contents(fd.get(), info, path));
  } else {
    TRY(write_header(path));
  }
  return S_ISDIR(info.st_mode) ? std::move(fd) : UniqueFd();
}

// Where a file has data, in pieces worth telling apart; all of it if it has no holes.
std::vector<Packer::Extent> Packer::find_data(int fd, std::uint64_t size) {
  std::vector<Extent> data;
  std::uint64_t at = 0;
  while (at < size) {
    off_t begin = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // Nothing but a hole up to the end.
    off_t end = begin < 0 ? -1 : ::lseek(fd, begin, SEEK_HOLE);
    if (end < 0) return {{0, size}};  // The file system cannot tell.
    Extent extent{static_cast<std::uint64_t>(begin),
                  std::min(size, static_cast<std::uint64_t>(end))};
    if (extent.begin >= size) break;
    if (!data.empty() && extent.begin - data.back().end < kSmallHole)
      data.back().end = extent.end;
    else
      data.push_back(extent);
    at = std::max(extent.end, at + 1);
  }
  return data;
}

// With its header, and exactly as many bytes as that promises, whatever happens to the file
// meanwhile.
Result<void> Packer::write_contents(int fd, const struct stat& info, const std::string& path) {
  auto size = static_cast<std::uint64_t>(info.st_size);
  std::vector<Extent> data{{0, size}};
  bool has_holes = info.st_blocks < info.st_size / kBlock;
  if (detail_ == Detail::saving && has_holes) data = find_data(fd, size);
  bool sparse = data.size() != 1 || data[0].begin != 0 || data[0].end != size;
  if (sparse) {
    for (const Extent& extent : data)
      ::archive_entry_sparse_add_entry(entry_.get(), static_cast<la_int64_t>(extent.begin),
                                       static_cast<la_int64_t>(extent.end - extent.begin));
    // A file without any data has a piece without any bytes: no pieces would mean no holes.
    if (data.empty()) ::archive_entry_sparse_add_entry(entry_.get(), 0, 0);
  }
  TRY(write_header(path));
  chunk_.resize(std::max<std::size_t>(chunk_.size(), std::min<std::uint64_t>(size, kChunk)));
  std::uint64_t at = 0;
  for (const Extent& extent : data) {
    TRY(write_zeros(extent.begin - at, path));
    for (at = extent.begin; at < extent.end;) {
      std::size_t wanted = std::min<std::uint64_t>(extent.end - at, chunk_.size());
      ssize_t n = ::pread(fd, chunk_.data(), wanted, static_cast<off_t>(at));
      if (n < 0) return fail_errno(path);
      if (n == 0) {
        TRY(write_zeros(extent.end - at, path));  // It has become shorter.
        at = extent.end;
        break;
      }
      if (::archive_write_data(out_, chunk_.data(), static_cast<std::size_t>(n)) < 0)
        return fail(archive_error(out_, path));
      at += static_cast<std::uint64_t>(n);
    }
  }
  return write_zeros(size - at, path);
}

// Of a hole the library takes nothing but the length, however long it is.
Result<void> Packer::write_zeros(std::uint64_t size, const std::string& path) {
  if (size == 0) return {};
  if (zeros_ == nullptr) {
    void* zeros =
        ::mmap(nullptr, kZeros, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) return fail_errno("mmap");
    zeros_ = zeros;
  }
  while (size > 0) {
    auto n = ::archive_write_data(out_, zeros_, std::min<std::uint64_t>(size, kZeros));
    if (n <= 0) return fail(archive_error(out_, path));
    size -= static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<void> Packer::add_removed(const std::string& path) {
  struct stat info {};
  info.st_mode = S_IFCHR;  // As an overlay says it: the device 0/0.
  describe(info, path);
  ::archive_entry_set_rdevmajor(entry_.get(), 0);
  ::archive_entry_set_rdevminor(entry_.get(), 0);
  return write_header(path);
}

Result<void> Packer::add_mark(const char* name, const std::string& value) {
  struct stat info {};
  info.st_mode = S_IFDIR | 0755;
  describe(info, ".");
  ::archive_entry_xattr_add_entry(entry_.get(), name, value.data(), value.size());
  return write_header(".");
}

Result<void> Packer::add_end() { return add_mark(wire::kSavedEnd, std::to_string(entries_)); }

Result<void> Packer::add_failure(const Error& error) {
  return add_mark(wire::kSavedFailure, error.what);
}

}  // namespace asr
