// One folder as several layers have it, topmost first: what lies below a written one.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>

#include "base/unique_fd.hpp"
#include "launch/plan.hpp"

namespace asr {

// The kernel's mark that a name is no more.
bool is_whiteout(const struct stat& info) noexcept;
// Its mark on a folder: nothing of the same folder in layers below is seen.
bool is_opaque(int dir) noexcept;

class LowerFolders {
 public:
  LowerFolders() = default;
  void add(int borrowed) noexcept {
    if (count_ < dirs_.size()) dirs_[count_++] = borrowed;
  }

  bool empty() const noexcept { return count_ == 0; }
  std::size_t count() const noexcept { return count_; }
  int at(std::size_t i) const noexcept { return dirs_[i]; }

  // The folder of the topmost layer that has `name`, and what it is there; -1 if none has it.
  int find(const char* name, struct stat& info) const noexcept;
  // The folder `name` in all layers in which it is seen.
  LowerFolders below(const char* name) const noexcept;

 private:
  std::array<int, kMaxLayers> dirs_{};
  std::array<UniqueFd, kMaxLayers> owned_;
  std::size_t count_ = 0;
};

}  // namespace asr
