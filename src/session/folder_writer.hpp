// Changes to a folder of the host's: all of them, or none.
//
// Names come from inside a sandbox, so none leads out of the folder, through a link or onto another
// file system. Nothing is written in place: everything is made ready in a folder beside, then put
// where it belongs by renames, which are taken back if one of them fails. Done with the rights of
// the folder's owner, to whom everything belongs afterwards.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

struct FolderStep {
  enum class Kind { file, folder, link, removal };
  Kind kind = Kind::file;
  std::string path;           // in the folder: "src/main.c"
  std::uint32_t mode = 0644;  // permission bits of a file or a folder; no others are given
  std::uint64_t size = 0;     // of a file
  std::string target;         // of a link
};

struct FolderRules {
  // What was removed goes, a folder with all that is in it; a file may take a folder's place. Not
  // if another file system is in it.
  bool remove = false;
  // Whoever changed a file after this has the last word, also in a folder that is to go.
  std::optional<std::chrono::system_clock::time_point> unchanged_since;
};

enum class Deed { created, replaced, removed, nothing };
std::string_view to_string(Deed deed) noexcept;

class FolderWriter {
 public:
  FolderWriter(FolderWriter&&) noexcept = default;
  FolderWriter& operator=(FolderWriter&&) = delete;
  ~FolderWriter();  // Whatever was made ready and not put into place is gone.

  static Result<FolderWriter> open(UniqueFd folder, FolderRules rules);

  // Whether it can be done, as far as looking can tell. Folders before what lies in them.
  Result<void> check(const FolderStep& step);
  // Makes it ready. `contents`: a file's, as long as the step says.
  Result<void> prepare(FolderStep step, int contents = -1);
  // Does what was checked and made ready, in that order. After an error the folder is as it was. It
  // is one if somebody has changed what was there when it was checked.
  struct Done {
    std::string path;
    Deed deed = Deed::nothing;
  };
  Result<std::vector<Done>> commit();

 private:
  struct Ready {
    FolderStep step;
    std::string name;  // in the staging folder
  };
  // What is at a name, as far as it shows that somebody else did something there. Not its ctime: we
  // change that ourselves when we replace another name of the same file.
  struct Mark {
    bool there = false;
    ino_t file = 0;
    std::uint32_t mode = 0;
    std::int64_t size = 0;         // not of a folder
    std::int64_t modified_ns = 0;  // nor this
    bool operator==(const Mark&) const = default;
  };
  // How one step is taken back.
  struct Undo {
    enum class Kind { bring_back, exchange, take_away, remove_folder, change_mode };
    Kind kind;
    std::string path;
    std::string name;  // in the staging folder
    std::uint32_t mode = 0;
  };

  FolderWriter(UniqueFd folder, FolderRules rules, uid_t owner, gid_t group, dev_t device);
  static Mark mark_of(const std::optional<struct stat>& there);
  Result<void> check_way(const std::string& path);
  bool leads_inside(const FolderStep& link) const;
  Result<void> check_there(const FolderStep& step, int parent, const struct stat& there) const;
  Result<void> check_age(const struct stat& there, const std::string& path) const;
  Result<void> check_below(int dir, const std::string& name, const std::string& path, int depth,
                           std::size_t& room) const;
  Result<void> check_tree(int dir, const std::string& name, const std::string& path) const;
  Result<std::optional<struct stat>> look(int dir, const std::string& name,
                                          const std::string& path) const;
  Result<UniqueFd> open_parent(const std::string& path) const;
  Result<UniqueFd> make_parents(const std::string& path);
  Result<void> stage();
  Result<void> make_ready(const Ready& ready, int contents) const;
  Result<Deed> put(const Ready& ready);
  Result<std::uint32_t> change_mode(const std::string& path, std::uint32_t permissions) const;
  Result<Deed> close_folder(const FolderStep& step);
  Result<std::vector<Done>> put_all();
  Result<void> take_away(const Ready& ready, int parent, const std::string& name);
  Result<void> check_taken(const std::string& path, const std::string& name) const;
  Result<void> take_back();
  Result<void> take_back(const Undo& undo) const;
  void clean_up() noexcept;

  UniqueFd folder_;
  FolderRules rules_;
  uid_t owner_;
  gid_t group_;
  dev_t device_;
  std::map<std::string, Mark> seen_;        // by path: what was there when it was checked
  std::set<std::string> becoming_folders_;  // checked, and not there yet
  UniqueFd staging_;
  std::string staging_name_;
  std::vector<Ready> ready_;
  std::vector<Undo> undo_;
};

}  // namespace asr
