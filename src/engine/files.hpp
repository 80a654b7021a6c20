// What a sandbox says about its files.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace asr {

enum class FileType { file, directory, symlink, other };

struct FileInfo {
  std::string name;  // The last component, as bytes: not always valid UTF-8
  FileType type = FileType::file;
  std::uint64_t size = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::chrono::system_clock::time_point modified;
  std::string target;  // of a symlink
  // Extended attributes that users may set ("user.…"), as far as there is room for them.
  std::map<std::string, std::string> attributes;
};

// Extended attributes of a file that is written, instead of those whose names begin with `prefix`.
struct FileAttributes {
  std::string prefix;
  std::map<std::string, std::string> values;  // by their whole names
};

struct DirectoryPage {
  std::vector<FileInfo> entries;
  std::uint64_t next = 0;  // Cursor of the next page; 0: there is none.
};

struct WatchEvent {
  enum class Kind { created, modified, removed, moved_from, moved_to, attributes, overflow };
  Kind kind = Kind::modified;
  std::string path;  // Relative to the watched directory; empty for overflow
  bool directory = false;
};

enum class WriteMode {
  create_or_replace,  // with the permissions that are asked for
  append,
  create_new,
  overwrite,  // one that is there keeps its permissions
};

}  // namespace asr
