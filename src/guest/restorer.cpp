#include "guest/restorer.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "guest/paths.hpp"
#include "os/file.hpp"
#include "wire/saved_files.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kMostEntries = 1'000'000;
constexpr std::size_t kDeepest = 600;

auto broken(const std::string& why) {
  return fail(Errc::invalid, "the saved files are broken: " + why);
}

std::string last_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string_view parent_of(std::string_view path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool is_plain_attribute(std::string_view name) {
  return name.starts_with("user.") || name == "system.posix_acl_access" ||
         name == "system.posix_acl_default";
}

int open_folder(int dir, const std::string& name) {
  return ::openat(dir, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Tries to make something; if another thing is there, in its place.
template <class Make>
Result<void> make_in_place(int parent, const std::string& path, Make make) {
  std::string last = last_of(path);
  if (make(last.c_str()) == 0) return {};
  if (errno != EEXIST) return fail_errno("/" + path);
  TRY(remove_tree(parent, last));
  if (make(last.c_str()) != 0) return fail_errno("/" + path);
  return {};
}

}  // namespace

Restorer::Restorer(archive* in, UniqueFd root, const Scratch& scratch)
    : in_(in), scratch_(scratch) {
  folders_.push_back({"", std::move(root), {}, false});
}

Result<std::uint64_t> Restorer::run() {
  archive_entry* entry = nullptr;
  for (;;) {
    int status = ::archive_read_next_header(in_, &entry);
    if (status == ARCHIVE_EOF) break;
    if (status < ARCHIVE_WARN) return fail(archive_error(in_, "the saved files are broken"));
    if (ended_) return broken("something comes after their end");
    if (entries_ >= kMostEntries) return fail(Errc::exhausted, "more than a million saved files");
    TRY(place(entry));
  }
  if (!ended_) return broken("they end early");
  while (!folders_.empty()) {
    TRY(finish(folders_.back()));
    folders_.pop_back();
  }
  return entries_;
}

// Relative to the root; "" is the root itself.
Result<std::string> Restorer::name_of(const char* raw) const {
  std::string name = raw != nullptr ? raw : "";
  if (name.ends_with('/')) name.pop_back();
  if (name == ".") return std::string();
  std::size_t parts = 0;
  for (std::size_t from = 0; from <= name.size(); ++parts) {
    std::size_t slash = std::min(name.find('/', from), name.size());
    std::string_view part = std::string_view(name).substr(from, slash - from);
    if (part.empty() || part == "." || part == "..") return broken("a name is not plain");
    if (part.size() > NAME_MAX) return broken("a name is too long");
    from = slash + 1;
  }
  if (parts > kDeepest) return broken("too many nested folders");
  for (const std::string& foreign : scratch_.foreign)
    if (is_inside("/" + name, foreign)) return broken("/" + name + " is not the sandbox's own");
  return name;
}

Result<Restorer::Attributes> Restorer::attributes_of(archive_entry* entry) {
  Attributes attributes;
  auto uid = ::archive_entry_uid(entry);
  auto gid = ::archive_entry_gid(entry);
  if (uid < 0 || uid >= kGuestId || gid < 0 || gid >= kGuestId)
    return broken("an owner is not the sandbox's");
  attributes.uid = static_cast<uid_t>(uid);
  attributes.gid = static_cast<gid_t>(gid);
  attributes.mode = ::archive_entry_perm(entry) & 07777;
  attributes.modified = {::archive_entry_mtime(entry), ::archive_entry_mtime_nsec(entry)};
  ::archive_entry_xattr_reset(entry);
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  while (::archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
    std::string text(static_cast<const char*>(value), size);
    if (std::strcmp(name, wire::kSavedEnd) == 0) {
      if (text != std::to_string(entries_)) return broken("some are missing");
      ended_ = true;
    } else if (std::strcmp(name, wire::kSavedFailure) == 0) {
      return fail(Errc::exhausted, "the files could not be saved: " + text.substr(0, 1000));
    } else if (std::strcmp(name, wire::kSavedReplaces) == 0) {
      attributes.replaces = true;
    } else if (is_plain_attribute(name)) {
      attributes.extended.emplace_back(name, std::move(text));
    } else {
      return broken("an attribute is not for files");
    }
  }
  return attributes;
}

// Whatever is not on the way to `next` has all its contents by now.
Result<void> Restorer::leave_folders(const std::string& next) {
  while (folders_.size() > 1 && !lies_in(next, folders_.back().path)) {
    TRY(finish(folders_.back()));
    folders_.pop_back();
  }
  return {};
}

Result<UniqueFd> Restorer::walk_to_parent(const std::string& path) const {
  UniqueFd here(::fcntl(folders_.front().dir.get(), F_DUPFD_CLOEXEC, 3));
  std::string parent(parent_of(path));
  for (std::size_t from = 0; from < parent.size();) {
    std::size_t slash = std::min(parent.find('/', from), parent.size());
    std::string part = parent.substr(from, slash - from);
    from = slash + 1;
    // A link in the way is refused: the stream could have put it there to lead us elsewhere.
    UniqueFd next(
        ::openat(here.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return broken("/" + path + " lies in no folder");
    here = std::move(next);
  }
  return here;
}

Result<void> Restorer::place(archive_entry* entry) {
  std::string path = TRY(name_of(::archive_entry_pathname(entry)));
  Attributes attributes = TRY(attributes_of(entry));
  if (ended_) return {};
  ++entries_;
  TRY(leave_folders(path));
  auto type = ::archive_entry_filetype(entry);
  if (path.empty()) {
    if (type != AE_IFDIR) return broken("the root is no folder");
    folders_.front().attributes = std::move(attributes);
    folders_.front().known = true;
    return {};
  }
  UniqueFd walked;
  int parent = folders_.back().dir.get();
  if (folders_.back().path != parent_of(path)) {
    walked = TRY(walk_to_parent(path));
    parent = walked.get();
  }
  if (const char* target = ::archive_entry_hardlink(entry))
    return make_hard_link(parent, path, target);
  switch (type) {
    case AE_IFDIR:
      return make_folder(parent, path, std::move(attributes));
    case AE_IFREG:
      return make_file(entry, parent, path, attributes);
    case AE_IFLNK:
      return make_symlink(entry, parent, path, attributes);
    case AE_IFIFO:
      return make_fifo(parent, path, attributes);
    case AE_IFCHR:
      if (::archive_entry_rdev(entry) != 0) return broken("a device");
      return remove_tree(parent, last_of(path));
    default:
      return broken("something that is no file");
  }
}

Result<void> Restorer::make_folder(int parent, const std::string& path, Attributes attributes) {
  std::string last = last_of(path);
  if (attributes.replaces) TRY(remove_tree(parent, last));
  UniqueFd dir;
  for (int tries = 0; !dir; ++tries) {
    if (::mkdirat(parent, last.c_str(), 0700) != 0 && errno != EEXIST)
      return fail_errno("/" + path);
    dir = UniqueFd(open_folder(parent, last));
    if (dir) break;
    if (tries > 0 || (errno != ENOTDIR && errno != ELOOP)) return fail_errno("/" + path);
    TRY(remove_tree(parent, last));  // Something else is in its place.
  }
  folders_.push_back({path, std::move(dir), std::move(attributes), true});
  return {};
}

Result<void> Restorer::make_file(archive_entry* entry, int parent, const std::string& path,
                                 const Attributes& attributes) {
  UniqueFd fd;
  TRY(make_in_place(parent, path, [&](const char* name) {
    fd = UniqueFd(
        ::openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd ? 0 : -1;
  }));
  TRY(read_contents(in_, entry, fd.get(), "/" + path));
  return apply(fd.get(), attributes, path);
}

Result<void> Restorer::make_symlink(archive_entry* entry, int parent, const std::string& path,
                                    const Attributes& attributes) {
  const char* target = ::archive_entry_symlink(entry);
  if (target == nullptr || *target == '\0') return broken("a link leads nowhere");
  TRY(make_in_place(parent, path,
                    [&](const char* name) { return ::symlinkat(target, parent, name); }));
  return apply_by_name(parent, path, attributes);
}

Result<void> Restorer::make_fifo(int parent, const std::string& path,
                                 const Attributes& attributes) {
  // With its mode at once: without a mask it gets exactly that.
  TRY(make_in_place(parent, path, [&](const char* name) {
    return ::mknodat(parent, name, S_IFIFO | attributes.mode, 0);
  }));
  return apply_by_name(parent, path, attributes);
}

Result<void> Restorer::make_hard_link(int parent, const std::string& path, const char* target) {
  std::string source = TRY(name_of(target));
  if (source.empty() || source == path) return broken("a link leads nowhere");
  UniqueFd from = TRY(walk_to_parent(source));
  std::string name = last_of(source);
  return make_in_place(parent, path, [&](const char* last) {
    return ::linkat(from.get(), name.c_str(), parent, last, 0);
  });
}

Result<void> Restorer::finish(const OpenFolder& folder) const {
  if (!folder.known) return {};
  int fd = folder.dir.get();
  // What it has from below and the saved one had lost.
  std::array<char, 4096> names{};
  ssize_t size = ::flistxattr(fd, names.data(), names.size());
  for (ssize_t at = 0; at < size;) {
    const char* name = names.data() + at;
    at += static_cast<ssize_t>(std::strlen(name)) + 1;
    const auto& wanted = folder.attributes.extended;
    bool kept = std::any_of(wanted.begin(), wanted.end(),
                            [&](const auto& one) { return one.first == name; });
    if (!kept && is_plain_attribute(name)) (void)::fremovexattr(fd, name);
  }
  return apply(fd, folder.attributes, folder.path);
}

// Owner, then mode: a new owner takes away the bits that made it somebody else's.
Result<void> Restorer::apply(int fd, const Attributes& attributes, const std::string& path) const {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("/" + path);
  bool owned = scratch_.one_id || (info.st_uid == attributes.uid && info.st_gid == attributes.gid);
  if (!owned && ::fchown(fd, attributes.uid, attributes.gid) != 0) return fail_errno("/" + path);
  if ((!owned || (info.st_mode & 07777) != attributes.mode) && ::fchmod(fd, attributes.mode) != 0)
    return fail_errno("/" + path);
  for (const auto& [name, value] : attributes.extended)
    if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0)
      return fail_errno("/" + path + ": " + name);
  std::array<timespec, 2> times{{{0, UTIME_OMIT}, attributes.modified}};
  (void)::futimens(fd, times.data());
  return {};
}

Result<void> Restorer::apply_by_name(int parent, const std::string& path,
                                     const Attributes& attributes) const {
  std::string last = last_of(path);
  if (!scratch_.one_id &&
      ::fchownat(parent, last.c_str(), attributes.uid, attributes.gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("/" + path);
  std::array<timespec, 2> times{{{0, UTIME_OMIT}, attributes.modified}};
  (void)::utimensat(parent, last.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
  return {};
}

}  // namespace asr
