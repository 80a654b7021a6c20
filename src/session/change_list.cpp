#include "session/change_list.hpp"

#include "wire/changes_between.hpp"

namespace asr {

bool is_same(const FileChange& then, const FileChange& now, Moments moments) noexcept {
  if (moments == Moments::of_one_sandbox) return then.stamp == now.stamp;
  bool folder = then.type == FileType::directory;
  return then.type == now.type && then.mode == now.mode && then.target == now.target &&
         (folder || (then.size == now.size && then.modified_ns == now.modified_ns));
}

Changes changes_between(const Changes& before, const Changes& after, Moments moments) {
  auto same = [moments](const FileChange& then, const FileChange& now) {
    return is_same(then, now, moments);
  };
  wire::ChangesBetween<FileChange, decltype(same)> comparing(before.entries, after.entries, same);
  return {comparing.find(), before.complete && after.complete};
}

bool is_within(std::string_view path, std::string_view folder) noexcept {
  while (folder.ends_with('/')) folder.remove_suffix(1);
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string_view to_string(FileChange::Kind kind) noexcept {
  switch (kind) {
    case FileChange::Kind::added:
      return "added";
    case FileChange::Kind::changed:
      return "changed";
    case FileChange::Kind::removed:
      break;
  }
  return "removed";
}

std::string_view to_string(FileType type) noexcept {
  switch (type) {
    case FileType::file:
      return "file";
    case FileType::directory:
      return "directory";
    case FileType::symlink:
      return "symlink";
    case FileType::other:
      break;
  }
  return "other";
}

}  // namespace asr
