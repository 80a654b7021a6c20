#include "engine/told_changes.hpp"

#include <algorithm>

namespace asr {

namespace {

// More than a guest tells (guest/changes_work.cpp): nobody can make us hold more than this.
constexpr std::size_t kMostChanges = 200'000;
constexpr std::size_t kMostBytes = 64 << 20;
constexpr std::size_t kLongestPath = 4096;

// Absolute, and of names only.
bool is_plain(const std::string& path) {
  if (path.size() > kLongestPath || !path.starts_with('/')) return false;
  if (path == "/") return true;
  if (path.find('\0') != std::string::npos) return false;
  for (std::size_t from = 1;;) {
    std::size_t slash = std::min(path.find('/', from), path.size());
    std::size_t size = slash - from;
    if (size == 0 || (size <= 2 && path.compare(from, size, "..", size) == 0)) return false;
    if (slash == path.size()) return true;
    from = slash + 1;
  }
}

bool makes_sense(const wire::FileChange& change) {
  return is_plain(change.path) && change.kind <= wire::ChangeKind::removed &&
         change.type <= wire::EntryType::other && change.target.size() <= kLongestPath &&
         change.target.find('\0') == std::string::npos;
}

FileChange to_change(wire::FileChange&& told) {
  FileChange change;
  change.path = std::move(told.path);
  change.kind = static_cast<FileChange::Kind>(told.kind);
  change.type = static_cast<FileType>(told.type);
  change.size = told.size;
  change.size_before = told.size_before;
  change.mode = told.mode & 07777;
  change.stamp = told.stamp;
  change.modified_ns = told.modified_ns;
  change.target = std::move(told.target);
  return change;
}

}  // namespace

Result<void> ToldChanges::add(wire::ChangeList list) {
  if (list.entries.empty() && list.more)
    return fail(Errc::internal, "the sandbox tells of no changes without end");
  for (wire::FileChange& told : list.entries) {
    if (!makes_sense(told))
      return fail(Errc::internal, "the sandbox tells of a change that makes no sense");
    bytes_ += told.path.size() + told.target.size();
    if (changes_.entries.size() >= kMostChanges || bytes_ > kMostBytes)
      return fail(Errc::internal, "the sandbox tells of changes without end");
    changes_.entries.push_back(to_change(std::move(told)));
  }
  changes_.complete = list.complete;
  return {};
}

Changes ToldChanges::take() {
  auto by_path = [](const FileChange& a, const FileChange& b) { return a.path < b.path; };
  auto same_path = [](const FileChange& a, const FileChange& b) { return a.path == b.path; };
  // A file that is moved while the sandbox looks may be seen twice: what was told last holds.
  std::reverse(changes_.entries.begin(), changes_.entries.end());
  std::stable_sort(changes_.entries.begin(), changes_.entries.end(), by_path);
  changes_.entries.erase(std::unique(changes_.entries.begin(), changes_.entries.end(), same_path),
                         changes_.entries.end());
  return std::move(changes_);
}

}  // namespace asr
