#include "os/cgroup.hpp"

#include <fcntl.h>

#include <algorithm>

#include "os/file.hpp"

namespace asr {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(separator));
    parts.push_back(part);
    text.remove_prefix(std::min(text.size(), part.size() + 1));
  }
  return parts;
}

}  // namespace

bool Hierarchy::has(std::string_view controller) const {
  return std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
}

std::vector<Hierarchy> parse_hierarchies(std::string_view mountinfo) {
  static constexpr std::string_view kControllers[] = {"memory",  "pids",  "cpu",
                                                      "cpuacct", "blkio", "io"};
  std::vector<Hierarchy> found;
  for (std::string_view line : split(mountinfo, '\n')) {
    // 36 35 98:0 /root /mount options shared:1 - type source super,options
    std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    auto before = split(line.substr(0, dash), ' ');
    auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 5 || after.size() < 3) continue;
    bool v2 = after[0] == "cgroup2";
    if (!v2 && after[0] != "cgroup") continue;
    Hierarchy hierarchy{std::string(before[4]), {}, v2};
    if (!v2)
      for (std::string_view option : split(after[2], ','))
        if (std::find(std::begin(kControllers), std::end(kControllers), option) !=
            std::end(kControllers))
          hierarchy.controllers.emplace_back(option);
    if (v2 || !hierarchy.controllers.empty()) found.push_back(std::move(hierarchy));
  }
  return found;
}

Result<std::vector<Hierarchy>> find_hierarchies() {
  std::string mountinfo = TRY(read_small_file(AT_FDCWD, "/proc/self/mountinfo", 4 << 20));
  std::vector<Hierarchy> hierarchies = parse_hierarchies(mountinfo);
  for (Hierarchy& hierarchy : hierarchies) {
    if (!hierarchy.v2) continue;
    auto names = read_small_file(AT_FDCWD, hierarchy.mount + "/cgroup.controllers");
    if (!names) continue;
    for (std::string_view name : split(*names, ' ')) hierarchy.controllers.emplace_back(name);
  }
  return hierarchies;
}

}  // namespace asr
