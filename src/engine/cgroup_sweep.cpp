// Removing the groups of engines that died, with whatever is still in them.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <thread>

#include "engine/cgroups.hpp"
#include "os/file.hpp"
#include "os/pidfd.hpp"

namespace asr {

std::vector<std::string> folders_in(int dir) {
  std::vector<std::string> names;
  int copy = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (!stream) return names;
  while (dirent* entry = ::readdir(stream.get()))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  return names;
}

namespace {

// Kills what is in a group and waits until it is empty. Without cgroup.kill, by pidfd from the
// list.
std::uint32_t kill_group(int group) {
  using namespace std::chrono_literals;
  auto count = [&] {
    auto procs = read_small_file(group, "cgroup.procs", 4 << 20);
    return procs && !procs->empty()
               ? static_cast<std::uint32_t>(std::count(procs->begin(), procs->end(), '\n') + 1)
               : 0U;
  };
  std::uint32_t found = count();
  for (int round = 0; round < 200 && count() > 0; ++round) {
    if (!write_value(group, "cgroup.kill", "1")) {
      auto procs = read_small_file(group, "cgroup.procs", 4 << 20);
      for (std::size_t at = 0; procs && at < procs->size();) {
        int pid = 0;
        std::from_chars(procs->data() + at, procs->data() + procs->size(), pid);
        if (auto pidfd = open_pidfd(pid)) (void)send_signal(pidfd->get(), SIGKILL);
        std::size_t end = procs->find('\n', at);
        at = end == std::string::npos ? procs->size() : end + 1;
      }
    }
    std::this_thread::sleep_for(5ms);
  }
  return found;
}

}  // namespace

CgroupSweep sweep_cgroups(const InstanceId& instance, const std::set<std::string>& spared) {
  using namespace std::chrono_literals;
  CgroupSweep sweep;
  auto hierarchies = find_hierarchies();
  if (!hierarchies) return sweep;
  // v2 first: killing there empties the v1 groups, too.
  std::stable_sort(hierarchies->begin(), hierarchies->end(),
                   [](const Hierarchy& a, const Hierarchy& b) { return a.v2 > b.v2; });
  std::vector<std::string> seen;
  for (const Hierarchy& hierarchy : *hierarchies) {
    std::string path = hierarchy.mount + "/" + kCgroupFamily + "/" + instance.text;
    auto own = open_dir(AT_FDCWD, path);
    if (!own) continue;
    for (const std::string& name : folders_in(own->get())) {
      if (spared.contains(name)) continue;
      if (std::find(seen.begin(), seen.end(), name) == seen.end()) seen.push_back(name);
      if (auto group = open_dir(own->get(), name)) sweep.processes += kill_group(group->get());
      int tries = 0;
      int failed = 0;
      while ((failed = ::unlinkat(own->get(), name.c_str(), AT_REMOVEDIR)) != 0 && errno == EBUSY &&
             ++tries < 200)
        std::this_thread::sleep_for(5ms);
      if (failed != 0 && errno != ENOENT && !spared.empty())
        sweep.problems.push_back(path + "/" + name + ": " + errno_error(errno, "rmdir").what);
    }
    if (spared.empty() && ::rmdir(path.c_str()) != 0 && errno != ENOENT)
      sweep.problems.push_back(path + ": " + errno_error(errno, "rmdir").what);
  }
  sweep.sandboxes = static_cast<std::uint32_t>(seen.size());
  return sweep;
}

}  // namespace asr
