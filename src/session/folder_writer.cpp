#include "session/folder_writer.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/id.hpp"
#include "os/file.hpp"
#include "session/folder_paths.hpp"

namespace asr {

namespace {

constexpr int kDeepest = 256;                  // A descriptor per level.
constexpr std::size_t kMostBelow = 1'000'000;  // in a folder that is to go
constexpr unsigned kPermissions = 0777;

// For as long as it lives this thread works on files as somebody else, and may no more than they.
class AsOwner {
 public:
  AsOwner(uid_t user, gid_t group) {
    if (::geteuid() != 0 || user == 0) return;
    changed_ = true;
    int count = ::getgroups(0, nullptr);
    groups_.resize(static_cast<std::size_t>(std::max(count, 0)));
    count = ::getgroups(static_cast<int>(groups_.size()), groups_.data());
    groups_.resize(static_cast<std::size_t>(std::max(count, 0)));
    set_groups({});
    ::setfsgid(group);
    ::setfsuid(user);
  }
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;
  ~AsOwner() {
    if (!changed_) return;
    ::setfsuid(0);
    ::setfsgid(::getegid());
    set_groups(groups_);
  }

 private:
  // Of this thread; setgroups(3) is for the whole process.
  static void set_groups(const std::vector<gid_t>& groups) noexcept {
    ::syscall(SYS_setgroups, groups.size(), groups.data());
  }

  bool changed_ = false;
  std::vector<gid_t> groups_;
};

std::string parent_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Result<UniqueFd> open_folder(int top, const std::string& path) {
  auto opened =
      open_resolved(top, path.empty() ? "." : path, O_PATH | O_DIRECTORY, Resolve::one_mount);
  if (opened || opened.error().code != Errc::invalid) return opened;
  return fail(Errc::conflict, path + " leads through a link there");
}

int rename_in(int from_dir, const std::string& from, int to_dir, const std::string& to,
              unsigned flags) {
  int done = ::renameat2(from_dir, from.c_str(), to_dir, to.c_str(), flags);
  // Some file systems know only the plain form.
  if (done == 0 || errno != EINVAL || flags != RENAME_NOREPLACE) return done;
  return ::renameat(from_dir, from.c_str(), to_dir, to.c_str());
}

Result<void> copy_exactly(int from, int to, std::uint64_t size, const std::string& path) {
  std::string chunk(256 << 10, '\0');
  std::uint64_t copied = 0;
  for (;;) {
    ssize_t n = ::read(from, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + path);
    copied += static_cast<std::uint64_t>(n);
    if (copied > size || (n == 0 && copied < size))
      return fail(Errc::conflict, path + " changed while it was copied",
                  "let the programs in the session come to rest first");
    if (n == 0) return {};
    for (ssize_t done = 0; done < n;) {
      ssize_t written = ::write(to, chunk.data() + done, static_cast<std::size_t>(n - done));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return fail_errno("write " + path);
      done += written;
    }
  }
}

using Listing = std::unique_ptr<DIR, int (*)(DIR*)>;

Listing list(UniqueFd folder) noexcept {
  Listing listing(folder ? ::fdopendir(folder.get()) : nullptr, ::closedir);
  if (listing) (void)folder.release();
  return listing;
}

// The next name; nothing at the end, with errno telling which.
const char* next_name(const Listing& listing) noexcept {
  for (;;) {
    errno = 0;
    dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) return nullptr;
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry->d_name;
  }
}

Result<UniqueFd> open_to_list(int dir, const std::string& name) {
  return open_resolved(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, Resolve::one_mount);
}

// Holds on to each folder it is in and never goes up by "..": somebody may move them meanwhile. Nor
// into another mount, whatever was looked at before.
void remove_below(UniqueFd folder, int depth) noexcept {
  struct stat info {};
  if (::fstat(folder.get(), &info) == 0 && (info.st_mode & 0700) != 0700)
    ::fchmod(folder.get(), (info.st_mode & kPermissions) | 0700);
  int dir = folder.get();
  Listing listing = list(std::move(folder));
  if (!listing) return;
  while (const char* name = next_name(listing)) {
    if (::unlinkat(dir, name, 0) == 0 || depth > kDeepest) continue;
    auto below = open_to_list(dir, name);
    if (!below) continue;
    remove_below(*std::move(below), depth + 1);
    ::unlinkat(dir, name, AT_REMOVEDIR);
  }
}

}  // namespace

std::string_view to_string(Deed deed) noexcept {
  constexpr std::string_view kNames[] = {"created", "replaced", "removed", "nothing"};
  return kNames[static_cast<std::size_t>(deed)];
}

FolderWriter::FolderWriter(UniqueFd folder, FolderRules rules, uid_t owner, gid_t group,
                           dev_t device)
    : folder_(std::move(folder)), rules_(rules), owner_(owner), group_(group), device_(device) {}

FolderWriter::~FolderWriter() { clean_up(); }

Result<FolderWriter> FolderWriter::open(UniqueFd folder, FolderRules rules) {
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return fail_errno("stat");
  if (!S_ISDIR(info.st_mode)) return fail(Errc::invalid, "it is not a folder");
  return FolderWriter(std::move(folder), rules, info.st_uid, info.st_gid, info.st_dev);
}

// ---- looking
// -------------------------------------------------------------------------------------

FolderWriter::Mark FolderWriter::mark_of(const std::optional<struct stat>& there) {
  if (!there) return {};
  Mark mark{true, there->st_ino, there->st_mode, 0, 0};
  if (S_ISDIR(there->st_mode)) return mark;
  mark.size = there->st_size;
  mark.modified_ns = there->st_mtim.tv_sec * std::int64_t{1'000'000'000} + there->st_mtim.tv_nsec;
  return mark;
}

// What is there, or nothing. What lies behind a mount is not the folder's.
Result<std::optional<struct stat>> FolderWriter::look(int dir, const std::string& name,
                                                      const std::string& path) const {
  auto opened = open_resolved(dir, name, O_PATH | O_NOFOLLOW, Resolve::one_mount);
  if (!opened && opened.error().code == Errc::not_found) return std::nullopt;
  struct stat info {};
  if (opened && ::fstat(opened->get(), &info) != 0) return fail_errno(path);
  bool elsewhere = opened ? info.st_dev != device_ : opened.error().code == Errc::conflict;
  if (elsewhere) return fail(Errc::conflict, path + " is another file system there");
  if (!opened) return fail(std::move(opened).error());
  return info;
}

// Each part of the way to a name is a folder, will be one, or is missing, and then made.
Result<void> FolderWriter::check_way(const std::string& path) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (becoming_folders_.contains(part)) return {};
    if (open_folder(folder_.get(), part)) continue;
    UniqueFd above = TRY(open_parent(part));
    if (!TRY(look(above.get(), name_of(part), part))) return {};
    return fail(Errc::conflict, part + " is no folder there, but a file or a link");
  }
  return {};
}

// Also if there is a link on its way that the folder has, and that leads out itself.
bool FolderWriter::leads_inside(const FolderStep& link) const {
  if (!stays_inside(link.path, link.target)) return false;
  auto place = std::filesystem::path(parent_of(link.path)) / link.target;
  auto opened = open_resolved(folder_.get(), place.lexically_normal(), O_PATH, Resolve::beneath);
  return opened || opened.error().code != Errc::conflict;
}

Result<void> FolderWriter::check_age(const struct stat& there, const std::string& path) const {
  if (!rules_.unchanged_since) return {};
  auto changed = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(there.st_ctim.tv_sec) +
          std::chrono::nanoseconds(there.st_ctim.tv_nsec)));
  if (changed <= *rules_.unchanged_since) return {};
  return fail(Errc::conflict, path + " was changed there meanwhile");
}

Result<void> FolderWriter::check_below(int dir, const std::string& name, const std::string& path,
                                       int depth, std::size_t& room) const {
  auto opened = open_to_list(dir, name);
  if (!opened && opened.error().code == Errc::not_found) return {};  // Gone, or no folder now.
  UniqueFd folder = TRY(std::move(opened));
  int fd = folder.get();
  Listing listing = list(std::move(folder));
  if (!listing) return fail_errno(path);
  while (const char* below = next_name(listing)) {
    std::string where = path + "/" + below;
    if (depth >= kDeepest || room-- == 0)
      return fail(Errc::conflict, path + " has too much in it to be removed");
    std::optional<struct stat> there = TRY(look(fd, below, where));
    if (!there) continue;
    TRY(check_age(*there, where));
    if (S_ISDIR(there->st_mode)) TRY(check_below(fd, below, where, depth + 1, room));
  }
  if (errno != 0) return fail_errno(path);
  return {};
}

// What goes with a folder: nothing of another file system, nothing that somebody has changed since,
// and nothing that we could not remove.
Result<void> FolderWriter::check_tree(int dir, const std::string& name,
                                      const std::string& path) const {
  std::size_t room = kMostBelow;
  return check_below(dir, name, path, 0, room);
}

Result<void> FolderWriter::check_there(const FolderStep& step, int parent,
                                       const struct stat& there) const {
  bool is_folder = S_ISDIR(there.st_mode);
  bool wants_folder = step.kind == FolderStep::Kind::folder;
  if (is_folder && wants_folder) return {};
  if (is_folder != wants_folder && !rules_.remove)
    return fail(Errc::conflict,
                step.path + (is_folder ? " is a folder there" : " is no folder there"),
                "it is replaced if things may be removed");
  TRY(check_age(there, step.path));
  if (is_folder) TRY(check_tree(parent, name_of(step.path), step.path));
  return {};
}

Result<void> FolderWriter::check(const FolderStep& step) {
  AsOwner as_owner(owner_, group_);
  if (!is_plain_path(step.path)) return fail(Errc::invalid, "not a path in a folder: " + step.path);
  if (step.kind == FolderStep::Kind::link && !leads_inside(step))
    return fail(Errc::denied, step.path + " is a link that leads out of the folder");
  if (step.kind == FolderStep::Kind::removal && !rules_.remove)
    return fail(Errc::conflict, step.path + " was removed, and nothing is to be");
  TRY(check_way(step.path));
  auto parent = open_parent(step.path);
  std::optional<struct stat> there;
  if (parent) there = TRY(look(parent->get(), name_of(step.path), step.path));
  if (there) TRY(check_there(step, parent->get(), *there));
  seen_[step.path] = mark_of(there);
  if (step.kind == FolderStep::Kind::folder && !(there && S_ISDIR(there->st_mode)))
    becoming_folders_.insert(step.path);
  return {};
}

Result<UniqueFd> FolderWriter::open_parent(const std::string& path) const {
  return open_folder(folder_.get(), parent_of(path));
}

// ---- making ready
// --------------------------------------------------------------------------------

Result<void> FolderWriter::stage() {
  if (staging_) return {};
  staging_name_ = ".agent-sandbox-" + random_name(12);
  if (::mkdirat(folder_.get(), staging_name_.c_str(), 0700) != 0)
    return fail_errno("write to the folder");
  auto opened = open_to_list(folder_.get(), staging_name_);
  if (!opened) ::unlinkat(folder_.get(), staging_name_.c_str(), AT_REMOVEDIR);
  staging_ = TRY(std::move(opened));
  return {};
}

Result<void> FolderWriter::make_ready(const Ready& ready, int contents) const {
  const FolderStep& step = ready.step;
  const char* name = ready.name.c_str();
  switch (step.kind) {
    case FolderStep::Kind::removal:
      return {};
    case FolderStep::Kind::folder:
      // Its mode comes last: things are still to be put into it.
      if (::mkdirat(staging_.get(), name, 0700) != 0) return fail_errno("make " + step.path);
      return {};
    case FolderStep::Kind::link:
      if (::symlinkat(step.target.c_str(), staging_.get(), name) != 0)
        return fail_errno("make " + step.path);
      return {};
    case FolderStep::Kind::file:
      break;
  }
  UniqueFd file(
      ::openat(staging_.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno("make " + step.path);
  TRY(copy_exactly(contents, file.get(), step.size, step.path));
  if (::fchmod(file.get(), step.mode & kPermissions) != 0) return fail_errno("make " + step.path);
  // Some file systems tell only now that there is no room.
  if (::close(file.release()) != 0) return fail_errno("write " + step.path);
  return {};
}

Result<void> FolderWriter::prepare(FolderStep step, int contents) {
  AsOwner as_owner(owner_, group_);
  TRY(stage());
  ready_.push_back({std::move(step), std::to_string(ready_.size())});
  return make_ready(ready_.back(), contents);
}

// ---- doing it
// ------------------------------------------------------------------------------------

Result<UniqueFd> FolderWriter::make_parents(const std::string& path) {
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (open_folder(folder_.get(), part)) continue;
    UniqueFd above = TRY(open_parent(part));
    std::string name = name_of(part);
    if (::mkdirat(above.get(), name.c_str(), 0755) != 0) return fail_errno("make " + part);
    undo_.push_back({Undo::Kind::remove_folder, part, {}});
    TRY(change_mode(part, 0755));
  }
  return open_parent(path);
}

// Of a folder; returns what it was. Bits beside the permissions are the host's own.
Result<std::uint32_t> FolderWriter::change_mode(const std::string& path,
                                                std::uint32_t permissions) const {
  UniqueFd folder = TRY(open_folder(folder_.get(), path));
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return fail_errno(path);
  std::uint32_t was = info.st_mode & 07777;
  std::uint32_t wanted = (was & ~kPermissions) | (permissions & kPermissions);
  // Not by its name, which may be a link by now; and it need not be readable.
  std::string itself = "/proc/self/fd/" + std::to_string(folder.get());
  if (wanted != was && ::chmod(itself.c_str(), wanted) != 0) return fail_errno("change " + path);
  return was;
}

Result<Deed> FolderWriter::close_folder(const FolderStep& step) {
  std::uint32_t was = TRY(change_mode(step.path, step.mode));
  if ((was & kPermissions) == (step.mode & kPermissions)) return Deed::nothing;
  undo_.push_back({Undo::Kind::change_mode, step.path, {}, was});
  return Deed::replaced;
}

// What was taken away is what was checked. From here on nobody finds it by its name any more.
Result<void> FolderWriter::check_taken(const std::string& path, const std::string& name) const {
  std::optional<struct stat> taken = TRY(look(staging_.get(), name, path));
  if (mark_of(taken) != seen_.at(path))
    return fail(Errc::conflict, path + " was changed there meanwhile");
  if (S_ISDIR(taken->st_mode)) TRY(check_tree(staging_.get(), name, path));
  return {};
}

Result<void> FolderWriter::take_away(const Ready& ready, int parent, const std::string& name) {
  std::string old = ready.name + ".old";
  if (rename_in(parent, name, staging_.get(), old, RENAME_NOREPLACE) != 0)
    return fail_errno("remove " + ready.step.path);
  undo_.push_back({Undo::Kind::bring_back, ready.step.path, old});
  return check_taken(ready.step.path, old);
}

Result<Deed> FolderWriter::put(const Ready& ready) {
  const FolderStep& step = ready.step;
  std::string name = name_of(step.path);
  bool removal = step.kind == FolderStep::Kind::removal;
  auto opened = removal ? open_parent(step.path) : make_parents(step.path);
  if (!opened && removal && opened.error().code == Errc::not_found) return Deed::nothing;
  UniqueFd parent = TRY(std::move(opened));
  std::optional<struct stat> there = TRY(look(parent.get(), name, step.path));
  if (removal && !there) return Deed::nothing;
  auto seen = seen_.find(step.path);
  if (seen == seen_.end()) return fail(Errc::internal, step.path + " was not checked");
  bool folder = step.kind == FolderStep::Kind::folder;
  bool stays = folder && there && S_ISDIR(there->st_mode) && S_ISDIR(seen->second.mode);
  if (stays) return Deed::nothing;
  if (mark_of(there) != seen->second)
    return fail(Errc::conflict, step.path + " was changed there meanwhile");
  if (removal) {
    TRY(take_away(ready, parent.get(), name));
    return Deed::removed;
  }
  if (there) {
    // One moment there is the old one, the next moment the new one.
    if (rename_in(staging_.get(), ready.name, parent.get(), name, RENAME_EXCHANGE) == 0) {
      undo_.push_back({Undo::Kind::exchange, step.path, ready.name});
      TRY(check_taken(step.path, ready.name));
      return Deed::replaced;
    }
    if (errno != EINVAL) return fail_errno("replace " + step.path);
    TRY(take_away(ready, parent.get(), name));
  }
  if (rename_in(staging_.get(), ready.name, parent.get(), name, RENAME_NOREPLACE) != 0)
    return fail_errno("write " + step.path);
  undo_.push_back(
      {folder ? Undo::Kind::remove_folder : Undo::Kind::take_away, step.path, ready.name});
  return there ? Deed::replaced : Deed::created;
}

Result<std::vector<FolderWriter::Done>> FolderWriter::put_all() {
  std::vector<Done> done;
  for (const Ready& ready : ready_) {
    auto put_there = TRY(put(ready));  // Named first: a list that is left in its middle leaks.
    done.push_back({ready.step.path, std::move(put_there)});
  }
  for (std::size_t i = ready_.size(); i-- > 0;) {
    if (ready_[i].step.kind != FolderStep::Kind::folder) continue;
    Deed deed = TRY(close_folder(ready_[i].step));
    if (done[i].deed == Deed::nothing) done[i].deed = deed;
  }
  return done;
}

Result<std::vector<FolderWriter::Done>> FolderWriter::commit() {
  AsOwner as_owner(owner_, group_);
  auto done = put_all();
  if (!done) {
    if (auto back = take_back(); !back)
      return fail(Errc::conflict, done.error().what + "; and then: " + back.error().what,
                  "what was there before is in " + staging_name_ + " of the folder");
    return done;
  }
  undo_.clear();
  clean_up();
  return done;
}

Result<void> FolderWriter::take_back(const Undo& undo) const {
  UniqueFd parent = TRY(open_parent(undo.path));
  std::string name = name_of(undo.path);
  int done = 0;
  switch (undo.kind) {
    case Undo::Kind::bring_back:
      done = rename_in(staging_.get(), undo.name, parent.get(), name, RENAME_NOREPLACE);
      break;
    case Undo::Kind::exchange:
      done = rename_in(staging_.get(), undo.name, parent.get(), name, RENAME_EXCHANGE);
      break;
    case Undo::Kind::take_away:
      done = rename_in(parent.get(), name, staging_.get(), undo.name, RENAME_NOREPLACE);
      break;
    case Undo::Kind::remove_folder:
      done = ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
      // Somebody has put something into it: then it is theirs.
      if (done != 0 && (errno == ENOTEMPTY || errno == EEXIST)) return {};
      break;
    case Undo::Kind::change_mode:
      TRY(change_mode(undo.path, undo.mode));
      break;
  }
  if (done != 0) return fail_errno("take back " + undo.path);
  return {};
}

// As much as can be, even if something cannot.
Result<void> FolderWriter::take_back() {
  Result<void> result;
  for (; !undo_.empty(); undo_.pop_back())
    if (auto back = take_back(undo_.back()); !back && result) result = std::move(back);
  if (!result) staging_.reset();  // It holds what was there before: it stays.
  return result;
}

// By what we hold, not by its name: that is only good for a folder that is empty.
void FolderWriter::clean_up() noexcept {
  if (!staging_) return;
  AsOwner as_owner(owner_, group_);
  remove_below(std::move(staging_), 0);
  ::unlinkat(folder_.get(), staging_name_.c_str(), AT_REMOVEDIR);
}

}  // namespace asr
