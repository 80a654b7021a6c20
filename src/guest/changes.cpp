#include "guest/changes.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "guest/compared_files.hpp"

namespace asr {

namespace {

// Deeper than any tree that makes sense; each level takes a few descriptors.
constexpr int kDeepest = 500;

bool is_dots(const char* name) noexcept {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

int open_folder(int dir, const char* name) noexcept {
  return ::openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Whether anything is in a folder; also if it cannot be told.
bool has_names(int dir, std::span<char> buffer) noexcept {
  UniqueFd fd(open_folder(dir, "."));
  long n = fd ? ::syscall(SYS_getdents64, fd.get(), buffer.data(), buffer.size()) : -1;
  for (long at = 0; at < n;) {
    const auto* entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
    if (!is_dots(entry->d_name)) return true;
    at += entry->d_reclen;
  }
  return n < 0;
}

// Gone since its name was read, or replaced by something else.
bool is_gone(int err) noexcept { return err == ENOENT || err == ENOTDIR || err == ELOOP; }

bool is_same_time(const timespec& a, const timespec& b) noexcept {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

wire::EntryType type_of(const struct stat& info) noexcept {
  if (S_ISREG(info.st_mode)) return wire::EntryType::file;
  if (S_ISDIR(info.st_mode)) return wire::EntryType::directory;
  if (S_ISLNK(info.st_mode)) return wire::EntryType::symlink;
  return wire::EntryType::other;
}

std::uint64_t size_of(const struct stat* info) noexcept {
  if (info == nullptr || (!S_ISREG(info->st_mode) && !S_ISLNK(info->st_mode))) return 0;
  return static_cast<std::uint64_t>(info->st_size);
}

wire::ChangeKind kind_of(Written::Verdict verdict) noexcept {
  if (verdict == Written::Verdict::added) return wire::ChangeKind::added;
  if (verdict == Written::Verdict::removed) return wire::ChangeKind::removed;
  return wire::ChangeKind::changed;
}

}  // namespace

wire::FileChange describe(const Written& written) {
  wire::FileChange change;
  change.path = written.path;
  change.kind = kind_of(written.verdict);
  change.type = type_of(written.now != nullptr ? *written.now : *written.before);
  change.size = size_of(written.now);
  change.size_before = size_of(written.before);
  if (written.now == nullptr) return change;
  change.mode = written.now->st_mode & 07777;
  change.stamp = stamp_of(*written.now);
  change.modified_ns =
      written.now->st_mtim.tv_sec * std::int64_t{1'000'000'000} + written.now->st_mtim.tv_nsec;
  return change;
}

std::uint64_t stamp_of(const struct stat& info) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  auto mix = [&](std::uint64_t part) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  };
  mix(info.st_ino);
  mix(info.st_mode);
  if (S_ISDIR(info.st_mode)) {
    mix(info.st_uid);
    mix(info.st_gid);
    return hash;
  }
  mix(static_cast<std::uint64_t>(info.st_ctim.tv_sec));
  mix(static_cast<std::uint64_t>(info.st_ctim.tv_nsec));
  mix(static_cast<std::uint64_t>(info.st_size));
  return hash;
}

bool ChangeWalk::failed(std::string_view what) {
  error_ = fail_errno(what);
  return false;
}

bool ChangeWalk::is_same_owner(const struct stat& a, const struct stat& b) const noexcept {
  return scratch_.one_id || (a.st_uid == b.st_uid && a.st_gid == b.st_gid);
}

struct stat ChangeWalk::stat_of(const Scratch::Made& made) const noexcept {
  struct stat info {};
  info.st_mode = made.mode | (made.contents ? S_IFREG : S_IFDIR);
  info.st_uid = info.st_gid = made.id;
  info.st_size = made.contents ? static_cast<off_t>(made.contents->size()) : 0;
  return info;
}

bool ChangeWalk::tell(Written& written) {
  written.path = path_.empty() ? "/" : std::string_view(path_);
  written.overlay = tree_->overlay;
  if (visitor_->visit(written)) return true;
  end_ = WalkEnd::stopped;
  return false;
}

// Of what is there now and was there before, and is no folder on both sides.
Written::Verdict ChangeWalk::compare(const Written& written, int before_dir) const {
  const struct stat& now = *written.now;
  const struct stat& before = *written.before;
  if (now.st_mode != before.st_mode || !is_same_owner(now, before))
    return Written::Verdict::changed;
  bool same = false;
  if (S_ISLNK(now.st_mode)) {
    same = have_same_target(written.dir, before_dir, written.name);
  } else if (S_ISREG(now.st_mode)) {
    auto size = static_cast<std::uint64_t>(now.st_size);
    same = now.st_size == before.st_size && is_same_time(now.st_mtim, before.st_mtim) &&
           size <= limits_.compared_bytes &&
           have_same_contents(written.dir, before_dir, written.name, size);
  }
  return same ? Written::Verdict::same : Written::Verdict::changed;
}

// A folder of a file system in memory says by its size how many names are in it, "." and ".."
// included; others do not tell.
std::uint64_t ChangeWalk::names_in(const struct stat& folder) const noexcept {
  constexpr std::uint64_t kBytesPerName = 20;
  if (!tree_->in_memory) return UINT64_MAX;
  std::uint64_t names = static_cast<std::uint64_t>(folder.st_size) / kBytesPerName;
  return names < 2 ? 0 : names - 2;
}

// All names of a folder, behind those that are there already. More than may be looked at are a
// limit: nobody reads a million names to tell of ten.
bool ChangeWalk::read_names(int dir) {
  for (;;) {
    long n = ::syscall(SYS_getdents64, dir, buffer_.data(), buffer_.size());
    if (n < 0) return failed(path_);
    if (n == 0) return true;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer_.data() + at);
      at += entry->d_reclen;
      if (is_dots(entry->d_name)) continue;
      if (++entries_ > limits_.entries) {
        end_ = WalkEnd::limited;
        return false;
      }
      names_.append(entry->d_name, std::strlen(entry->d_name) + 1);
    }
  }
}

// What the launch had put into this folder and is not there any more.
bool ChangeWalk::tell_missing() {
  for (std::size_t i = 0; i < scratch_.made.size(); ++i) {
    const Scratch::Made& made = scratch_.made[i];
    std::size_t slash = made.path.rfind('/');
    if (made_seen_[i] != 0 || made.path.compare(0, slash, path_) != 0) continue;
    if (scratch_.covers(made.path)) continue;
    struct stat before = stat_of(made);
    std::string folder = std::exchange(path_, made.path);
    Written written{.verdict = Written::Verdict::removed, .before = &before, .launched = true};
    bool go_on = tell(written);
    path_ = std::move(folder);
    if (!go_on) return false;
  }
  return true;
}

// What the layers below have and this folder, which replaced theirs, has not.
bool ChangeWalk::tell_hidden(int dir, const LowerFolders& lowers) {
  std::size_t path_size = path_.size();
  std::size_t first = names_.size();
  for (std::size_t i = 0; i < lowers.count(); ++i) {
    UniqueFd lower(open_folder(lowers.at(i), "."));
    if (!lower) continue;
    names_.resize(first);
    if (!read_names(lower.get())) return false;
    for (std::size_t at = first; at < names_.size(); at += std::strlen(&names_[at]) + 1) {
      const char* name = &names_[at];
      struct stat info {};
      if (::fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !is_whiteout(info)) continue;
      if (lowers.find(name, info) != lowers.at(i)) continue;  // Removed before, or told already.
      path_.append("/").append(name);
      Written written{.verdict = Written::Verdict::removed, .before = &info, .hidden = true};
      bool go_on = scratch_.covers(path_) || tell(written);
      path_.resize(path_size);
      if (!go_on) return false;
    }
  }
  names_.resize(first);
  return true;
}

// `under` is what layers below have of the folder itself.
bool ChangeWalk::look_at_folder(Written& written, const LowerFolders& under, Below below,
                                int depth) {
  bool empty = names_in(*written.now) == 0;
  UniqueFd dir;
  if (!empty || !under.empty()) {
    dir = UniqueFd(open_folder(written.dir, written.name));
    if (!dir) return is_gone(errno) || failed(path_);
  }
  if (below == Below::seen && !under.empty() && tree_->overlay && is_opaque(dir.get())) {
    written.replaces = true;
    below = Below::hidden;
  }
  if (!tell(written)) return false;
  if (empty && (below == Below::seen || under.empty())) return tell_missing();
  if (depth >= kDeepest) {
    end_ = WalkEnd::limited;
    return true;
  }
  return walk_folder(dir.get(), *written.now, under, below, depth + 1);
}

// Layers do not change: what they have in the folders of the launch, most often nothing, is looked
// up once.
bool ChangeWalk::is_bare(std::size_t made, const LowerFolders& lowers, const char* name) {
  if (made_bare_[made] != Bare::unknown) return made_bare_[made] == Bare::yes;
  made_bare_[made] = Bare::yes;
  LowerFolders under = lowers.below(name);
  for (std::size_t i = 0; i < under.count(); ++i)
    if (has_names(under.at(i), buffer_)) made_bare_[made] = Bare::no;
  return made_bare_[made] == Bare::yes;
}

// path_ is that of the thing itself.
bool ChangeWalk::look_at(int dir, const char* name, const LowerFolders& lowers, Below below,
                         int depth) {
  if (scratch_.covers(path_)) return true;
  struct stat now {};
  if (::fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) != 0) return is_gone(errno) || failed(path_);
  struct stat before {};
  Written written{.now = &now, .before = &before, .dir = dir, .name = name};
  const Scratch::Made* made = scratch_.find_made(path_);
  int before_dir = made != nullptr ? -1 : lowers.find(name, before);
  bool bare = false;
  if (made != nullptr) {
    auto index = static_cast<std::size_t>(made - scratch_.made.data());
    made_seen_[index] = 1;
    bare = S_ISDIR(now.st_mode) && is_bare(index, lowers, name);
    before = stat_of(*made);
    written.launched = true;
  } else if (before_dir < 0) {
    written.before = nullptr;
    bare = true;
  }

  if (tree_->overlay && is_whiteout(now)) {
    if (written.before == nullptr || below == Below::hidden) return true;  // There was nothing.
    written.now = nullptr;
    written.verdict = Written::Verdict::removed;
    return tell(written);
  }
  if (written.before == nullptr) {
    written.verdict = Written::Verdict::added;
  } else if (S_ISDIR(now.st_mode) && S_ISDIR(before.st_mode)) {
    bool same = now.st_mode == before.st_mode && is_same_owner(now, before);
    written.verdict = same ? Written::Verdict::same : Written::Verdict::changed;
  } else if (made != nullptr) {
    bool same = made->contents && now.st_mode == before.st_mode && is_same_owner(now, before) &&
                has_contents(dir, name, *made->contents);
    written.verdict = same ? Written::Verdict::same : Written::Verdict::changed;
  } else {
    written.verdict = compare(written, before_dir);
  }
  if (!S_ISDIR(now.st_mode)) return tell(written);
  return look_at_folder(written, bare ? LowerFolders() : lowers.below(name), below, depth);
}

bool ChangeWalk::walk_folder(int dir, const struct stat& info, const LowerFolders& lowers,
                             Below below, int depth) {
  std::size_t path_size = path_.size();
  std::size_t first = names_.size();
  // How many it tells is good only for this: by now there may be others, which come first.
  if (names_in(info) > 0 && !read_names(dir)) return false;
  std::size_t last = names_.size();
  for (std::size_t at = first; at < last;) {
    // Anew for each: the names of folders below come and go behind these, and may move them.
    const char* name = &names_[at];
    at += std::strlen(name) + 1;
    path_.append("/").append(name);
    bool go_on = look_at(dir, name, lowers, below, depth);
    path_.resize(path_size);
    if (!go_on) return false;
  }
  names_.resize(first);
  if (below == Below::hidden && !tell_hidden(dir, lowers)) return false;
  return tell_missing();
}

bool ChangeWalk::walk_tree(const Scratch::Tree& tree) {
  tree_ = &tree;
  path_ = tree.path;
  names_.clear();
  struct stat now {};
  if (::fstatat(tree.base, tree.folder.c_str(), &now, AT_SYMLINK_NOFOLLOW) != 0)
    return failed(tree.path);
  struct stat before {};
  before.st_mode = tree.mode | S_IFDIR;
  before.st_uid = before.st_gid = tree.id;
  Written written{.now = &now,
                  .before = &before,
                  .dir = tree.base,
                  .name = tree.folder.c_str(),
                  .launched = true};
  bool same = now.st_mode == before.st_mode && is_same_owner(now, before);
  written.verdict = same ? Written::Verdict::same : Written::Verdict::changed;
  if (!tell(written)) return false;
  if (names_in(now) == 0) return tell_missing();
  UniqueFd dir(open_folder(tree.base, tree.folder.c_str()));
  if (!dir) return failed(tree.path);
  LowerFolders lowers;
  for (int lower : tree.lowers) lowers.add(lower);
  return walk_folder(dir.get(), now, lowers, Below::seen, 0);
}

Result<WalkEnd> ChangeWalk::run(Visitor& visitor) {
  visitor_ = &visitor;
  entries_ = 0;
  end_ = WalkEnd::complete;
  error_ = Result<void>();
  made_seen_.assign(scratch_.made.size(), 0);
  made_bare_.resize(scratch_.made.size(), Bare::unknown);
  for (const Scratch::Tree& tree : scratch_.trees)
    if (!walk_tree(tree)) break;
  if (!error_) return fail(error_.error());
  return end_;
}

}  // namespace asr
