// File operations that end by themselves. Paths are resolved by the kernel inside the sandbox's own
// root; what is opened for the daemon is a regular file of a real file system, or nothing.

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "guest/attributes.hpp"
#include "guest/paths.hpp"
#include "guest/work.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

using wire::File;

wire::EntryType type_of(mode_t mode) {
  if (S_ISREG(mode)) return wire::EntryType::file;
  if (S_ISDIR(mode)) return wire::EntryType::directory;
  if (S_ISLNK(mode)) return wire::EntryType::symlink;
  return wire::EntryType::other;
}

Result<wire::Entry> describe(int dir, const std::string& name) {
  struct stat info {};
  if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
    return fail_errno(name);
  wire::Entry entry;
  entry.name = name;
  entry.type = type_of(info.st_mode);
  entry.size = static_cast<std::uint64_t>(info.st_size);
  entry.mode = info.st_mode & 07777;
  entry.uid = info.st_uid;
  entry.gid = info.st_gid;
  entry.modified =
      std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec);
  if (entry.type == wire::EntryType::symlink) {
    std::array<char, 4096> target{};
    ssize_t n = ::readlinkat(dir, name.c_str(), target.data(), target.size());
    if (n > 0) entry.target.assign(target.data(), static_cast<std::size_t>(n));
  } else if (!name.empty()) {
    entry.attributes = attributes_of(dir, name);
  }
  return entry;
}

Result<void> stat_path(const Work& work, const File& request) {
  if (is_root(request.path)) {
    UniqueFd root = TRY(sandbox_root());
    wire::Info info{TRY(describe(root.get(), ""))};
    info.entry.name = "/";
    return work.answer(info);
  }
  ParentAndName place = TRY(resolve_parent(request.path));
  wire::Info info{TRY(describe(place.parent.get(), place.name))};
  return work.answer(info);
}

// Cursors are the file system's own positions, so a page costs what is on it, not what is before
// it.
Result<void> list_path(const Work& work, const File& request) {
  UniqueFd root = TRY(sandbox_root());
  UniqueFd dir =
      TRY(open_resolved(root.get(), request.path, O_RDONLY | O_DIRECTORY, Resolve::in_root));
  if (request.cursor != 0 && ::lseek(dir.get(), static_cast<off_t>(request.cursor), SEEK_SET) < 0)
    return fail(Errc::invalid, "not a cursor of this directory");
  constexpr std::size_t kPageBytes = 96 * 1024;  // of kMaxPacket
  wire::Page page;
  std::size_t bytes = 0;
  std::uint64_t position = request.cursor;
  alignas(dirent64) std::array<char, 32768> raw{};
  bool full = false;
  while (!full) {
    long n = ::syscall(SYS_getdents64, dir.get(), raw.data(), raw.size());
    if (n < 0) return fail_errno("read " + request.path);
    if (n == 0) break;
    for (long at = 0; at < n && !full;) {
      auto* entry = reinterpret_cast<dirent64*>(raw.data() + at);
      at += entry->d_reclen;
      std::string name = entry->d_name;
      if (name != "." && name != "..") {
        auto described = describe(dir.get(), name);
        if (described) {  // else it was removed meanwhile
          bytes += 64 + name.size() + described->target.size();
          for (const std::string& text : described->attributes) bytes += 8 + text.size();
          page.entries.push_back(*std::move(described));
        }
      }
      position = static_cast<std::uint64_t>(entry->d_off);
      full = page.entries.size() >= request.most || bytes >= kPageBytes;
    }
  }
  page.next = full ? position : 0;
  return work.answer(page);
}

// The kernel's own pseudo files are not for the daemon to read or write: some block, some have
// effects, and this process's memory is among them.
Result<void> check_is_plain_file(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno(path);
  if (S_ISDIR(info.st_mode)) return fail(Errc::conflict, path + " is a directory");
  if (!S_ISREG(info.st_mode)) return fail(Errc::denied, path + " is not a regular file");
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0) return fail_errno(path);
  for (auto magic :
       {PROC_SUPER_MAGIC, DEVPTS_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC})
    if (static_cast<unsigned long>(system.f_type) == static_cast<unsigned long>(magic))
      return fail(Errc::denied, path + " is not a file of the sandbox's own");
  return {};
}

Result<void> open_for_reading(const Work& work, const File& request) {
  UniqueFd root = TRY(sandbox_root());
  // O_NONBLOCK: a FIFO without a writer must not hold us.
  UniqueFd fd = TRY(
      open_resolved(root.get(), request.path, O_RDONLY | O_NONBLOCK | O_NOCTTY, Resolve::in_root));
  TRY(check_is_plain_file(fd.get(), request.path));
  std::array<int, 1> sent{fd.get()};
  return work.answer(wire::Opened{}, sent);
}

Result<UniqueFd> open_for_writing(const File& request) {
  UniqueFd root = TRY(sandbox_root());
  TRY(make_parents(request.path));
  int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY;
  if (request.mode_flags == 1) flags |= O_APPEND;
  if (request.mode_flags == 2) flags |= O_EXCL;
  UniqueFd fd =
      TRY(open_resolved(root.get(), request.path, flags, Resolve::in_root, request.mode & 07777));
  // Checked before anything is thrown away.
  TRY(check_is_plain_file(fd.get(), request.path));
  if (request.mode_flags == 0 || request.mode_flags == 3) {
    if (::ftruncate(fd.get(), 0) != 0) return fail_errno(request.path);
    // Asked for a mode, so give it, also to a file that was there before; its owner may.
    if (request.mode_flags == 0) (void)::fchmod(fd.get(), request.mode & 07777);
  }
  if (!request.other.empty()) TRY(replace_attributes(fd.get(), request.other, request.attributes));
  return fd;
}

Result<void> write_all(int to, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(to, data.data(), data.size());
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
      return fail(Errc::exhausted, "the session's disk is full",
                  "remove something, or create sessions with more disk");
    if (n < 0) return fail_errno("write");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> copy_until_end(int from, int to) {
  std::string chunk(256 * 1024, '\0');
  for (;;) {
    ssize_t n = ::read(from, chunk.data(), chunk.size());
    if (n < 0) return fail_errno("read");
    if (n == 0) return {};
    TRY(write_all(to, std::string_view(chunk).substr(0, static_cast<std::size_t>(n))));
  }
}

Result<void> make_directory(const Work& work, const File& request) {
  TRY(make_parents(request.path));
  ParentAndName place = TRY(resolve_parent(request.path));
  if (::mkdirat(place.parent.get(), place.name.c_str(), request.mode & 07777) != 0) {
    int err = errno;
    struct stat info {};
    if (err != EEXIST || ::fstatat(place.parent.get(), place.name.c_str(), &info, 0) != 0 ||
        !S_ISDIR(info.st_mode))
      return fail(errno_error(err, request.path));
  }
  return work.answer(wire::Done{});
}

constexpr int kDeepest =
    256;  // A descriptor per level; far above what people make, below any limit.

Result<void> copy_extent(int from, int to, off_t at, off_t end) {
  std::array<char, 65536> chunk{};
  while (at < end) {
    ssize_t n =
        ::pread(from, chunk.data(),
                std::min<std::size_t>(chunk.size(), static_cast<std::size_t>(end - at)), at);
    if (n < 0) return fail_errno("read");
    if (n == 0) return {};  // It became shorter meanwhile.
    for (ssize_t done = 0; done < n;) {
      ssize_t written =
          ::pwrite(to, chunk.data() + done, static_cast<std::size_t>(n - done), at + done);
      if (written < 0) return fail_errno("write");
      done += written;
    }
    at += n;
  }
  return {};
}

// Holes stay holes: a sparse file may be larger than the disk.
Result<void> copy_contents(int from, int to) {
  struct stat info {};
  if (::fstat(from, &info) != 0) return fail_errno("stat");
  for (off_t at = 0; at < info.st_size;) {
    off_t data = ::lseek(from, at, SEEK_DATA);
    if (data < 0) {
      if (errno == ENXIO) break;  // Nothing but a hole to the end.
      return fail_errno("seek");
    }
    off_t hole = ::lseek(from, data, SEEK_HOLE);
    if (hole < 0) return fail_errno("seek");
    TRY(copy_extent(from, to, data, hole));
    at = hole;
  }
  if (::ftruncate(to, info.st_size) != 0) return fail_errno("truncate");
  return {};
}

Result<void> copy_entry(int from_dir, const std::string& from, int to_dir, const std::string& to,
                        int depth);

Result<void> copy_directory(int from_dir, const std::string& from, int to_dir,
                            const std::string& to, mode_t mode, int depth) {
  if (depth > kDeepest) return fail(Errc::exhausted, from + ": too many nested directories");
  UniqueFd source(
      ::openat(from_dir, from.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!source) return fail_errno(from);
  if (::mkdirat(to_dir, to.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(to);
  UniqueFd target(::openat(to_dir, to.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!target) return fail_errno(to);
  int copy = ::fcntl(source.get(), F_DUPFD_CLOEXEC, 0);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (!stream) return fail_errno(from);
  while (dirent* entry = ::readdir(stream.get())) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    TRY(copy_entry(source.get(), name, target.get(), name, depth + 1));
  }
  if (::fchmod(target.get(), mode & 07777) != 0) return fail_errno(to);
  return {};
}

Result<void> copy_entry(int from_dir, const std::string& from, int to_dir, const std::string& to,
                        int depth) {
  struct stat info {};
  if (::fstatat(from_dir, from.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(from);
  if (S_ISDIR(info.st_mode)) return copy_directory(from_dir, from, to_dir, to, info.st_mode, depth);
  if (S_ISLNK(info.st_mode)) {
    std::string target(4096, '\0');
    ssize_t n = ::readlinkat(from_dir, from.c_str(), target.data(), target.size());
    if (n < 0) return fail_errno(from);
    target.resize(static_cast<std::size_t>(n));
    if (::symlinkat(target.c_str(), to_dir, to.c_str()) != 0) return fail_errno(to);
    return {};
  }
  if (!S_ISREG(info.st_mode)) return {};  // Sockets, FIFOs and devices are not copied.
  UniqueFd source(::openat(from_dir, from.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!source) return fail_errno(from);
  UniqueFd target(
      ::openat(to_dir, to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!target) return fail_errno(to);
  TRY(copy_contents(source.get(), target.get()));
  if (::fchmod(target.get(), info.st_mode & 07777) != 0) return fail_errno(to);
  return {};
}

Result<void> copy_path(const Work& work, const File& request) {
  if (is_inside(request.other, request.path))
    return fail(Errc::invalid, "cannot copy " + request.path + " into itself");
  ParentAndName from = TRY(resolve_parent(request.path));
  TRY(make_parents(request.other));
  ParentAndName to = TRY(resolve_parent(request.other));
  TRY(copy_entry(from.parent.get(), from.name, to.parent.get(), to.name, 0));
  return work.answer(wire::Done{});
}

Result<void> move_path(const Work& work, const File& request) {
  ParentAndName from = TRY(resolve_parent(request.path));
  TRY(make_parents(request.other));
  ParentAndName to = TRY(resolve_parent(request.other));
  if (::renameat(from.parent.get(), from.name.c_str(), to.parent.get(), to.name.c_str()) == 0)
    return work.answer(wire::Done{});
  if (errno != EXDEV) return fail_errno(request.path);
  TRY(copy_entry(from.parent.get(), from.name, to.parent.get(), to.name, 0));
  TRY(remove_tree(from.parent.get(), from.name));
  return work.answer(wire::Done{});
}

Result<void> remove_path(const Work& work, const File& request) {
  ParentAndName place = TRY(resolve_parent(request.path));
  struct stat info {};
  if (::fstatat(place.parent.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno(request.path);
  TRY(remove_tree(place.parent.get(), place.name));
  return work.answer(wire::Done{});
}

Result<void> change_mode(const Work& work, const File& request) {
  UniqueFd root = TRY(sandbox_root());
  UniqueFd fd = TRY(open_resolved(root.get(), request.path, O_PATH, Resolve::in_root));
  // By its descriptor's name: its owner may change the mode of a file that cannot be opened.
  std::string name = "/proc/self/fd/" + std::to_string(fd.get());
  if (::chmod(name.c_str(), request.mode & 07777) != 0) return fail_errno(request.path);
  return work.answer(wire::Done{});
}

// `cursor` has the ids, user and group, which were looked up before rights were given away.
Result<void> change_owner(const Work& work, const File& request) {
  auto uid = static_cast<uid_t>(request.cursor >> 32U);
  auto gid = static_cast<gid_t>(request.cursor);
  ParentAndName place = TRY(resolve_parent(request.path));
  if (::fchownat(place.parent.get(), place.name.c_str(), uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno(request.path);
  return work.answer(wire::Done{});
}

Result<void> make_symlink(const Work& work, const File& request) {
  TRY(make_parents(request.path));
  ParentAndName place = TRY(resolve_parent(request.path));
  if (::symlinkat(request.other.c_str(), place.parent.get(), place.name.c_str()) != 0)
    return fail_errno(request.path);
  return work.answer(wire::Done{});
}

}  // namespace

Result<void> work_on_write(const Work& work, const File& request, UniqueFd source) {
  UniqueFd file = TRY(open_for_writing(request));
  TRY(work.answer(wire::Done{}));
  TRY(copy_until_end(source.get(), file.get()));
  file.reset();  // A program that is still open for writing could not be executed.
  return work.answer(wire::Done{});
}

Result<void> work_on_files(const Work& work, const File& request) {
  switch (request.op) {
    case wire::FileOp::stat:
      return stat_path(work, request);
    case wire::FileOp::list:
      return list_path(work, request);
    case wire::FileOp::open_read:
      return open_for_reading(work, request);
    case wire::FileOp::make_directory:
      return make_directory(work, request);
    case wire::FileOp::move:
      return move_path(work, request);
    case wire::FileOp::copy:
      return copy_path(work, request);
    case wire::FileOp::remove:
      return remove_path(work, request);
    case wire::FileOp::change_mode:
      return change_mode(work, request);
    case wire::FileOp::symlink:
      return make_symlink(work, request);
    case wire::FileOp::change_owner:
      return change_owner(work, request);
    case wire::FileOp::write:
    case wire::FileOp::watch:
    case wire::FileOp::archive_out:
    case wire::FileOp::archive_in:
    case wire::FileOp::changes:
    case wire::FileOp::save:
    case wire::FileOp::restore:
    case wire::FileOp::open_before:
      break;
  }
  return fail(Errc::internal, "unknown file operation");
}

}  // namespace asr
