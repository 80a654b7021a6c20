// Where what a sandbox writes lies, and what it began with. Pid 1 knows it since the launch;
// programs see only what the kernel makes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/plan.hpp"

namespace asr {

struct Scratch {
  // A tree that programs write to: the upper layer of an overlay, or a folder mounted as it is.
  struct Tree {
    std::string path;         // where programs see it: "" for the root, or e.g. "/usr"
    int base = -1;            // what it lies in
    std::string folder;       // its name there
    bool in_memory = true;    // on a tmpfs, not on a disk
    bool overlay = false;     // It has marks of the kernel's: this was removed, that was replaced.
    std::vector<int> lowers;  // what it began with, topmost first
    std::uint32_t mode = 0755;
    std::uint32_t id = 0;  // owner and group, at the launch
  };
  // What the launch itself has put there.
  struct Made {
    std::string path;
    std::uint32_t mode = 0755;
    std::uint32_t id = 0;
    std::optional<std::string> contents;  // absent: a folder
  };

  std::vector<Tree> trees;
  std::vector<Made> made;
  std::vector<std::string>
      covered;  // Something else is mounted there: what lies there is not seen.
  std::vector<std::string> foreign;  // Of these, what is not the sandbox's own to keep.
  std::vector<int> descriptors;      // all that the trees have
  bool one_id = false;               // Everything has the same owner.

  bool covers(const std::string& path) const noexcept;
  // The tree that programs see at this path.
  const Tree* tree_of(std::string_view path) const noexcept;
  const Made* find_made(const std::string& path) const noexcept;
};

Scratch scratch_of(const LaunchPlan& plan, const LaunchOutcome& outcome);

}  // namespace asr
