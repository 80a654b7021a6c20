// Puts files into a tar stream, one at a time and as they are at that moment: whatever programs do
// to them meanwhile, the stream stays a tar stream.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "guest/archive_stream.hpp"

namespace asr {

class Packer {
 public:
  enum class Detail {
    plain,   // what any tar can unpack: files, folders and links
    saving,  // all that can be put back, holes and attributes included
  };
  struct Origin {
    bool overlay = false;   // in an upper layer, whose marks are not attributes
    bool replaces = false;  // a folder with nothing of the one that a new sandbox has there
  };

  Packer(archive* out, Detail detail);
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;
  ~Packer();

  // The thing called `name` in `dir`, as `path`. What is gone by now, or of a kind that is not
  // packed, is left out. A folder comes back opened: what lies in it is the caller's business.
  Result<UniqueFd> add(int dir, const char* name, const std::string& path, Origin origin);
  Result<UniqueFd> add(int dir, const char* name, const std::string& path) {
    return add(dir, name, path, Origin());
  }

  // Only in saved files: that `path` was removed; that this was all, or could not be all.
  Result<void> add_removed(const std::string& path);
  Result<void> add_end();
  Result<void> add_failure(const Error& error);

 private:
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  void describe(const struct stat& info, const std::string& path);
  Result<bool> add_target(int dir, const char* name);
  bool is_known_link(const struct stat& info, const std::string& path);
  void add_attributes(int fd, Origin origin);
  std::vector<Extent> find_data(int fd, std::uint64_t size);
  Result<void> add_mark(const char* name, const std::string& value);
  Result<void> write_header(const std::string& path);
  Result<void> write_contents(int fd, const struct stat& info, const std::string& path);
  Result<void> write_zeros(std::uint64_t size, const std::string& path);

  archive* out_;
  Detail detail_;
  ArchiveEntry entry_;
  std::uint64_t entries_ = 0;
  std::vector<char> chunk_;
  void* zeros_ = nullptr;  // a large piece of nothing, which takes no memory
  // Files with several names, by the first seen.
  std::map<std::pair<dev_t, ino_t>, std::string> links_;
};

}  // namespace asr
