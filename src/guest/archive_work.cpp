// Tar streams in and out. Parsing happens here, with the user's rights inside the sandbox: an
// archive that breaks the parser breaks nothing else. Entries are placed by us, not by the library:
// names cannot lead out of the folder, devices are not made, and ownership is the user's.

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <map>
#include <memory>

#include "guest/paths.hpp"
#include "guest/work.hpp"
#include "launch/plan.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kMostEntries = 1'000'000;
constexpr std::size_t kMostReasons = 16;
constexpr int kDeepest = 256;

struct FreeWriter {
  void operator()(archive* a) const noexcept { ::archive_write_free(a); }
};
struct FreeReader {
  void operator()(archive* a) const noexcept { ::archive_read_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const noexcept { ::archive_entry_free(e); }
};

Error archive_error(archive* a, const std::string& what) {
  const char* text = ::archive_error_string(a);
  return Error(Errc::invalid, what + ": " + (text != nullptr ? text : "unknown error"));
}

// ---- out
// -----------------------------------------------------------------------------------------

class Packer {
 public:
  explicit Packer(archive* out) : out_(out) {}

  Result<void> add(int dir, const std::string& name, const std::string& path, int depth) {
    struct stat info {};
    if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
      return {};  // Removed meanwhile.
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode) && !S_ISLNK(info.st_mode)) return {};
    UniqueFd fd;
    if (!S_ISLNK(info.st_mode)) {
      fd = UniqueFd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (!fd) return errno == ENOENT || errno == ELOOP ? Result<void>() : fail_errno(path);
      if (::fstat(fd.get(), &info) != 0) return fail_errno(path);
      if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return {};
    }
    std::unique_ptr<archive_entry, FreeEntry> entry(::archive_entry_new());
    ::archive_entry_copy_stat(entry.get(), &info);
    ::archive_entry_set_pathname(entry.get(), path.c_str());
    if (S_ISLNK(info.st_mode)) {
      std::string target(4096, '\0');
      ssize_t n = ::readlinkat(dir, name.c_str(), target.data(), target.size() - 1);
      if (n < 0) return {};
      target.resize(static_cast<std::size_t>(n));
      ::archive_entry_set_symlink(entry.get(), target.c_str());
      ::archive_entry_set_size(entry.get(), 0);
    }
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) {
      auto [first, is_first] = links_.try_emplace({info.st_dev, info.st_ino}, path);
      if (!is_first) {
        ::archive_entry_set_hardlink(entry.get(), first->second.c_str());
        ::archive_entry_set_size(entry.get(), 0);
        info.st_size = 0;
      }
    }
    if (::archive_write_header(out_, entry.get()) < ARCHIVE_WARN)
      return fail(archive_error(out_, path));
    if (S_ISREG(info.st_mode))
      return add_contents(fd.get(), static_cast<std::uint64_t>(info.st_size), path);
    if (S_ISDIR(info.st_mode)) return add_below(fd.get(), path, depth);
    return {};
  }

  Result<void> add_below(int dir, const std::string& path, int depth) {
    if (depth > kDeepest) return fail(Errc::exhausted, path + ": too many nested directories");
    int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return fail_errno(path);
    std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
    if (!stream) return fail_errno(path);
    while (dirent* entry = ::readdir(stream.get())) {
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      TRY(add(dir, name, path.empty() ? name : path + "/" + name, depth + 1));
    }
    return {};
  }

 private:
  // Exactly as many bytes as the header promised, whatever happens to the file meanwhile.
  Result<void> add_contents(int fd, std::uint64_t size, const std::string& path) {
    std::array<char, 65536> chunk{};
    while (size > 0) {
      ssize_t n = ::read(fd, chunk.data(), std::min<std::uint64_t>(size, chunk.size()));
      if (n < 0) return fail_errno(path);
      if (n == 0) {
        chunk.fill('\0');
        n = static_cast<ssize_t>(std::min<std::uint64_t>(size, chunk.size()));
      }
      if (::archive_write_data(out_, chunk.data(), static_cast<std::size_t>(n)) < 0)
        return fail(archive_error(out_, path));
      size -= static_cast<std::uint64_t>(n);
    }
    return {};
  }

  archive* out_;
  std::map<std::pair<dev_t, ino_t>, std::string>
      links_;  // Files with several names, by the first seen.
};

// ---- in
// ------------------------------------------------------------------------------------------

class Unpacker {
 public:
  Unpacker(archive* in, int top) : in_(in), top_(top) {}

  Result<wire::ArchiveDone> run() {
    archive_entry* entry = nullptr;
    for (;;) {
      int status = ::archive_read_next_header(in_, &entry);
      if (status == ARCHIVE_EOF) break;
      if (status < ARCHIVE_WARN) return fail(archive_error(in_, "archive"));
      if (++done_.entries > kMostEntries)
        return fail(Errc::exhausted, "more than a million entries");
      TRY(place(entry));
    }
    // Last, and innermost first: a folder without the right to write could not have been filled.
    for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder)
      if (auto parent = parent_for(folder->first))
        (void)::fchmodat(parent->get(), last_of(folder->first).c_str(), folder->second, 0);
    done_.entries -= done_.skipped;
    return done_;
  }

 private:
  Result<void> skip(const std::string& name, const std::string& reason) {
    ++done_.skipped;
    if (done_.reasons.size() < kMostReasons)
      done_.reasons.push_back(name.substr(0, 200) + ": " + reason);
    return {};
  }

  // The folder for `name`, made where missing; beneath the top by the kernel's word.
  Result<UniqueFd> parent_for(const std::string& name) {
    UniqueFd here(::fcntl(top_, F_DUPFD_CLOEXEC, 3));
    std::size_t from = 0;
    for (std::size_t slash = 0; (slash = name.find('/', from)) != std::string::npos;
         from = slash + 1) {
      std::string part = name.substr(from, slash - from);
      if (part.empty() || part == ".") continue;
      if (::mkdirat(here.get(), part.c_str(), 0755) != 0 && errno != EEXIST)
        return fail_errno(name);
      // A link in the way is refused: an archive could have put it there to lead us elsewhere.
      UniqueFd next(
          ::openat(here.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next) return fail_errno(name);
      here = std::move(next);
    }
    return here;
  }

  static std::string clean(const char* raw) {
    std::string name = raw != nullptr ? raw : "";
    while (name.starts_with('/')) name.erase(0, 1);
    while (name.ends_with('/')) name.pop_back();
    while (name.starts_with("./")) name.erase(0, 2);
    return name;
  }

  static std::string last_of(const std::string& name) {
    std::size_t slash = name.rfind('/');
    return slash == std::string::npos ? name : name.substr(slash + 1);
  }

  static bool leads_outside(const std::string& name) {
    return name == ".." || name.starts_with("../") || name.find("/../") != std::string::npos ||
           name.ends_with("/..");
  }

  Result<void> place(archive_entry* entry) {
    std::string name = clean(::archive_entry_pathname(entry));
    if (name.empty() || name == ".") return {};
    if (name.size() > 4000 || name.find('\0') != std::string::npos)
      return skip(name, "the name is too long");
    if (leads_outside(name)) return skip(name, "the name leads outside");
    auto parent = parent_for(name);
    if (!parent) return skip(name, parent.error().what);
    std::string last = last_of(name);
    auto mode = static_cast<mode_t>(::archive_entry_perm(entry) & 01777);  // No set-id bits.

    if (const char* target = ::archive_entry_hardlink(entry))
      return hard_link(name, *parent, last, clean(target));
    switch (::archive_entry_filetype(entry)) {
      case AE_IFDIR:
        if (::mkdirat(parent->get(), last.c_str(), mode) != 0 && errno != EEXIST)
          return skip(name, "cannot be made");
        (void)::fchmodat(parent->get(), last.c_str(), mode | 0700, 0);
        folders_.emplace_back(name, mode);
        return give_to_owner(entry, *parent, last);
      case AE_IFLNK: {
        const char* target = ::archive_entry_symlink(entry);
        (void)::unlinkat(parent->get(), last.c_str(), 0);
        if (target == nullptr || ::symlinkat(target, parent->get(), last.c_str()) != 0)
          return skip(name, "the link cannot be made");
        return give_to_owner(entry, *parent, last);
      }
      case AE_IFREG:
        return write_file(entry, name, *parent, last, mode);
      default:
        return skip(name, "devices, sockets and FIFOs are not unpacked");
    }
  }

  Result<void> hard_link(const std::string& name, const UniqueFd& parent, const std::string& last,
                         const std::string& target) {
    if (leads_outside(target) || target.empty()) return skip(name, "the link leads outside");
    auto from = parent_for(target);
    if (!from) return skip(name, from.error().what);
    std::string source = last_of(target);
    (void)::unlinkat(parent.get(), last.c_str(), 0);
    if (::linkat(from->get(), source.c_str(), parent.get(), last.c_str(), 0) != 0)
      return skip(name, "the hard link cannot be made");
    return {};
  }

  Result<void> write_file(archive_entry* entry, const std::string& name, const UniqueFd& parent,
                          const std::string& last, mode_t mode) {
    // Replaced, not opened: what is there may be a link or a FIFO.
    (void)::unlinkat(parent.get(), last.c_str(), 0);
    UniqueFd fd(::openat(parent.get(), last.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!fd)
      return errno == ENOSPC ? Result<void>(fail_errno(name))
                             : skip(name, "the file cannot be made");
    const void* block = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    for (;;) {
      int status = ::archive_read_data_block(in_, &block, &size, &offset);
      if (status == ARCHIVE_EOF) break;
      if (status < ARCHIVE_WARN) return fail(archive_error(in_, name));
      while (size > 0) {
        ssize_t n = ::pwrite(fd.get(), block, size, offset);
        if (n < 0) return fail_errno(name);
        block = static_cast<const char*>(block) + n;
        size -= static_cast<std::size_t>(n);
        offset += n;
      }
    }
    // A sparse end has no block of its own.
    if (::archive_entry_size(entry) > 0 && ::ftruncate(fd.get(), ::archive_entry_size(entry)) != 0)
      return fail_errno(name);
    (void)::fchmod(fd.get(), mode);
    std::array<timespec, 2> times{{{0, UTIME_OMIT}, {::archive_entry_mtime(entry), 0}}};
    (void)::futimens(fd.get(), times.data());
    return give_to_owner(entry, parent, last);
  }

  // Root may give files away, and an image's owners mean something; anybody else keeps what is
  // unpacked.
  static Result<void> give_to_owner(archive_entry* entry, const UniqueFd& parent,
                                    const std::string& last) {
    if (::geteuid() != 0) return {};
    auto uid = ::archive_entry_uid(entry);
    auto gid = ::archive_entry_gid(entry);
    if (uid >= 0 && uid < kGuestId && gid >= 0 && gid < kGuestId)
      (void)::fchownat(parent.get(), last.c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(gid),
                       AT_SYMLINK_NOFOLLOW);
    return {};
  }

  archive* in_;
  int top_;
  std::vector<std::pair<std::string, mode_t>> folders_;
  wire::ArchiveDone done_;
};

}  // namespace

Result<void> work_on_archive_out(const Work& work, const wire::File& request) {
  UniqueFd root = TRY(sandbox_root());
  UniqueFd top =
      TRY(open_resolved(root.get(), request.path, O_RDONLY | O_NONBLOCK, Resolve::in_root));
  struct stat info {};
  if (::fstat(top.get(), &info) != 0) return fail_errno(request.path);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  std::array<int, 1> sent{reader.get()};
  TRY(work.answer(wire::Opened{}, sent));
  reader.reset();

  std::unique_ptr<archive, FreeWriter> out(::archive_write_new());
  ::archive_write_set_format_pax_restricted(out.get());
  ::archive_write_set_bytes_per_block(out.get(), 65536);
  ::archive_write_set_bytes_in_last_block(out.get(), 512);
  // The answer went out with the pipe, so a failure now can only be an early end of the stream,
  // which tar readers notice: the archive lacks its end mark.
  if (::archive_write_open_fd(out.get(), writer.get()) != ARCHIVE_OK) ::_exit(0);
  Packer packer(out.get());
  Result<void> packed;
  if (S_ISDIR(info.st_mode)) {
    packed = packer.add_below(top.get(), "", 0);
  } else {
    ParentAndName place = TRY(resolve_parent(request.path));
    packed = packer.add(place.parent.get(), place.name, place.name, 0);
  }
  if (!packed) ::_exit(0);
  ::archive_write_close(out.get());
  ::_exit(0);
}

Result<void> work_on_archive_in(const Work& work, const wire::File& request, UniqueFd tar) {
  UniqueFd root = TRY(sandbox_root());
  if (!is_root(request.path)) {
    TRY(make_parents(request.path));
    ParentAndName place = TRY(resolve_parent(request.path));
    if (::mkdirat(place.parent.get(), place.name.c_str(), 0755) != 0 && errno != EEXIST)
      return fail_errno(request.path);
  }
  UniqueFd top =
      TRY(open_resolved(root.get(), request.path, O_PATH | O_DIRECTORY, Resolve::in_root));
  std::unique_ptr<archive, FreeReader> in(::archive_read_new());
  ::archive_read_support_format_tar(in.get());
  ::archive_read_support_filter_gzip(in.get());
  ::archive_read_support_filter_bzip2(in.get());
  ::archive_read_support_filter_xz(in.get());
  ::archive_read_support_filter_zstd(in.get());
  if (::archive_read_open_fd(in.get(), tar.get(), 65536) != ARCHIVE_OK)
    return fail(archive_error(in.get(), "not an archive"));
  Unpacker unpacker(in.get(), top.get());
  wire::ArchiveDone done = TRY(unpacker.run());
  return work.answer(done);
}

}  // namespace asr
