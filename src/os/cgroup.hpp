// Control groups, whichever generation this machine has: where each controller is mounted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace asr {

struct Hierarchy {
  std::string mount;                     // Where it is mounted.
  std::vector<std::string> controllers;  // What it limits; empty for a v2 tree without controllers.
  bool v2 = false;

  bool has(std::string_view controller) const;
};

// The mounted hierarchies, from the text of /proc/self/mountinfo. For v2 the controllers are those
// its cgroup.controllers names, read through `controllers_of`.
std::vector<Hierarchy> parse_hierarchies(std::string_view mountinfo);

// The same of this machine, with the controllers of the v2 tree filled in.
Result<std::vector<Hierarchy>> find_hierarchies();

}  // namespace asr
