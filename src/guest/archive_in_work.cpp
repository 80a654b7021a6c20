// Tar streams from anywhere, unpacked with the user's rights inside the sandbox: an archive that
// breaks the parser breaks nothing else. Entries are placed by us, not by the library: names cannot
// lead out of the folder, devices are not made, and ownership is the user's.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "guest/archive_stream.hpp"
#include "guest/paths.hpp"
#include "guest/work.hpp"
#include "launch/plan.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kMostEntries = 1'000'000;
constexpr std::size_t kMostReasons = 16;

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
    TRY(read_contents(in_, entry, fd.get(), name));
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
  ArchiveReader in(::archive_read_new());
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
