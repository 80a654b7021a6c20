// Makes a sandbox's files those of a saved stream, through the root that programs see: what is
// removed, replaced or put in place is so for the kernel, too. The stream is believed in nothing:
// it names files below the root or is refused, and no link is followed.
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "guest/archive_stream.hpp"
#include "guest/scratch.hpp"

namespace asr {

class Restorer {
 public:
  Restorer(archive* in, UniqueFd root, const Scratch& scratch);
  // How many entries there were.
  Result<std::uint64_t> run();

 private:
  struct Attributes {
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    timespec modified{};
    std::vector<std::pair<std::string, std::string>> extended;
    bool replaces = false;
  };
  // A folder whose contents are being put in place: its own attributes come last, because its time
  // changes with each of them, and what is made in it would inherit some.
  struct OpenFolder {
    std::string path;  // "" or e.g. "usr/bin"
    UniqueFd dir;
    Attributes attributes;
    bool known = false;  // The stream has told them.
  };

  Result<void> place(archive_entry* entry);
  Result<std::string> name_of(const char* raw) const;
  Result<Attributes> attributes_of(archive_entry* entry);
  Result<void> leave_folders(const std::string& next);
  Result<UniqueFd> walk_to_parent(const std::string& path) const;

  Result<void> make_folder(int parent, const std::string& path, Attributes attributes);
  Result<void> make_file(archive_entry* entry, int parent, const std::string& path,
                         const Attributes& attributes);
  Result<void> make_symlink(archive_entry* entry, int parent, const std::string& path,
                            const Attributes& attributes);
  Result<void> make_fifo(int parent, const std::string& path, const Attributes& attributes);
  Result<void> make_hard_link(int parent, const std::string& path, const char* target);

  Result<void> finish(const OpenFolder& folder) const;
  Result<void> apply(int fd, const Attributes& attributes, const std::string& path) const;
  Result<void> apply_by_name(int parent, const std::string& path,
                             const Attributes& attributes) const;

  archive* in_;
  const Scratch& scratch_;
  std::vector<OpenFolder> folders_;  // from the root down
  std::uint64_t entries_ = 0;
  bool ended_ = false;
};

}  // namespace asr
