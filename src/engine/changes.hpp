// What a sandbox has made of the files it began with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/files.hpp"

namespace asr {

// How a file differs from what the sandbox began with.
struct FileChange {
  enum class Kind { added, changed, removed };
  std::string path;  // absolute, as bytes: not always valid UTF-8
  Kind kind = Kind::added;
  FileType type = FileType::file;  // now; of a removed one: before
  std::uint64_t size = 0;          // now
  std::uint64_t size_before = 0;   // zero if it was not there
  std::uint32_t mode = 0;          // permission bits, now
  std::uint64_t stamp = 0;         // Another one whenever anything about the file has changed.
  std::int64_t modified_ns = 0;    // its time, which is saved with it and restored
  std::string target;              // of a symlink
};

struct Changes {
  std::vector<FileChange> entries;  // by path
  bool complete = true;             // false: there are more than could be told
};

}  // namespace asr
