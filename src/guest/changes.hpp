// Walks what a sandbox has written and says how each thing differs from what was there before. It
// follows no link, opens nothing but folders (and files whose contents it may compare), and looks
// at no more than it is told to: pid 1 may do it itself.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "guest/lower_folders.hpp"
#include "guest/scratch.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// One thing that lies in a written tree, or is missing there. Everything is borrowed for the visit.
struct Written {
  // same: folders on the way to others, what the launch has made, and copies that nobody changed.
  enum class Verdict { same, added, changed, removed };

  std::string_view path;  // as programs see it
  Verdict verdict = Verdict::same;
  const struct stat* now = nullptr;     // absent: it was removed
  const struct stat* before = nullptr;  // absent: it was not there
  int dir = -1;                         // Where it lies now, if it does.
  const char* name = nullptr;
  bool overlay = false;   // In an overlay's upper layer, whose marks are not the programs' own.
  bool replaces = false;  // A folder with nothing of the one before it, if not in one already.
  bool hidden = false;    // Removed because its folder was.
  bool launched = false;  // The launch has made it.
};

// Another one whenever anything about the file has changed. Of a folder only what it is itself, not
// what lies in it.
std::uint64_t stamp_of(const struct stat& info) noexcept;

// As it is told; where a symlink leads is left out.
wire::FileChange describe(const Written& written);

struct WalkLimits {
  std::uint64_t entries = UINT64_MAX;  // names looked at
  std::uint64_t compared_bytes = 0;    // Copies up to this size are compared with the original.
};

enum class WalkEnd {
  complete,
  stopped,  // by the visitor
  limited,  // There is more than the limits allow, or deeper than can be followed.
};

// Can be used again and again: it keeps its buffers.
class ChangeWalk {
 public:
  class Visitor {
   public:
    virtual bool visit(const Written& written) = 0;  // false: enough
   protected:
    ~Visitor() = default;
  };

  ChangeWalk(const Scratch& scratch, WalkLimits limits) : scratch_(scratch), limits_(limits) {}
  // Folders before what lies in them; otherwise in no order.
  Result<WalkEnd> run(Visitor& visitor);

 private:
  // Whether what lies below in the original is seen through a folder.
  enum class Below { seen, hidden };

  bool walk_tree(const Scratch::Tree& tree);
  bool walk_folder(int dir, const struct stat& info, const LowerFolders& lowers, Below below,
                   int depth);
  bool look_at(int dir, const char* name, const LowerFolders& lowers, Below below, int depth);
  bool look_at_folder(Written& written, const LowerFolders& under, Below below, int depth);
  bool tell_hidden(int dir, const LowerFolders& lowers);
  bool tell_missing();
  bool read_names(int dir);
  std::uint64_t names_in(const struct stat& folder) const noexcept;
  bool is_bare(std::size_t made, const LowerFolders& lowers, const char* name);
  bool tell(Written& written);
  Written::Verdict compare(const Written& written, int before_dir) const;
  bool is_same_owner(const struct stat& a, const struct stat& b) const noexcept;
  struct stat stat_of(const Scratch::Made& made) const noexcept;
  bool failed(std::string_view what);

  const Scratch& scratch_;
  WalkLimits limits_;
  Visitor* visitor_ = nullptr;
  const Scratch::Tree* tree_ = nullptr;
  std::string path_;
  std::string names_;            // Of the folders that are being walked, each with its zero byte.
  std::vector<char> made_seen_;  // by the index in scratch_.made
  enum class Bare : char { unknown, no, yes };
  std::vector<Bare> made_bare_;  // whether layers below have nothing in it
  std::uint64_t entries_ = 0;
  WalkEnd end_ = WalkEnd::complete;
  Result<void> error_;
  alignas(dirent64) std::array<char, 8192> buffer_;
};

}  // namespace asr
