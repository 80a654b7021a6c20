#include "snapshot.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "os/cgroup.hpp"
#include "os/file.hpp"

namespace asr::test {

namespace fs = std::filesystem;

namespace {

rlim_t mark = 0;

std::string text_of(const std::string& path) {
  return read_small_file(AT_FDCWD, path, 16 << 20).value_or("");
}

long lines_of(const std::string& path) {
  std::string text = text_of(path);
  return text.empty() ? 0 : std::count(text.begin(), text.end(), '\n') + 1;
}

long entries_of(const fs::path& dir) {
  std::error_code ec;
  return std::distance(fs::directory_iterator(dir, ec), fs::directory_iterator());
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool has_mark(const std::string& limits) {
  std::size_t at = limits.find("Max file locks");
  if (at == std::string::npos) return false;
  std::istringstream words(limits.substr(at + 14));
  std::string soft;
  words >> soft;
  return soft == std::to_string(mark);
}

long directories_below(const std::string& root) {
  long count = 0;
  std::error_code ec;
  for (auto it = fs::recursive_directory_iterator(root, ec);
       !ec && it != fs::recursive_directory_iterator(); it.increment(ec))
    if (it->is_directory(ec)) ++count;
  return count;
}

// Groups the kernel still keeps although their folders are gone.
long dying_memory_groups() {
  auto hierarchies = find_hierarchies();
  if (!hierarchies) return 0;
  for (const Hierarchy& hierarchy : *hierarchies) {
    if (!hierarchy.has("memory")) continue;
    if (hierarchy.v2)
      return static_cast<long>(
          read_keyed(AT_FDCWD, hierarchy.mount + "/cgroup.stat", "nr_dying_descendants")
              .value_or(0));
    std::istringstream lines(text_of("/proc/cgroups"));
    std::string name;
    long tree = 0;
    long groups = 0;
    long on = 0;
    lines.ignore(4096, '\n');
    while (lines >> name >> tree >> groups >> on)
      if (name == "memory") return groups - 1 - directories_below(hierarchy.mount);
  }
  return 0;
}

long own_groups(const Scope& scope) {
  long count = 0;
  auto hierarchies = find_hierarchies();
  if (!hierarchies) return 0;
  for (const Hierarchy& hierarchy : *hierarchies)
    for (const std::string& instance : scope.instances) {
      std::string path = hierarchy.mount + "/agent-sandbox/" + instance;
      std::error_code ec;
      if (fs::is_directory(path, ec)) count += 1 + directories_below(path);
    }
  return count;
}

long slab_objects(const std::string& name) {
  std::istringstream lines(text_of("/proc/slabinfo"));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string found;
    long active = 0;
    if (words >> found >> active && found == name) return active;
  }
  return 0;
}

long own_status(const std::string& key) {
  std::istringstream lines(text_of("/proc/self/status"));
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with(key + ":")) return std::stol(line.substr(key.size() + 1));
  return 0;
}

}  // namespace

void mark_descendants() {
  mark = 1'000'000'000 + std::random_device()() % 1'000'000'000;
  rlimit limit{mark, mark};
  if (::setrlimit(RLIMIT_LOCKS, &limit) != 0) throw std::runtime_error("setrlimit RLIMIT_LOCKS");
}

std::set<int> marked_processes() {
  std::set<int> found;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ec)) {
    std::string name = entry.path().filename();
    if (!is_number(name) || std::stoi(name) == ::getpid()) continue;
    if (has_mark(text_of("/proc/" + name + "/limits"))) found.insert(std::stoi(name));
  }
  return found;
}

Counts count_remains(Scope& scope) {
  Counts counts;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(scope.runtime_dir, ec)) {
    std::string name = entry.path().filename();
    if (name == "ids") continue;  // The locks of uid ranges stay: they are few, and shared.
    ++counts["runtime folders"];
    scope.instances.insert(name);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(scope.cache_dir, ec))
    if (entry.path().filename().native().starts_with("new-")) ++counts["unfinished environments"];
  counts["cgroups"] = own_groups(scope);
  std::set<int> processes = marked_processes();
  counts["processes"] = static_cast<long>(processes.size());
  std::set<fs::path> networks;
  fs::path own = fs::read_symlink("/proc/self/ns/net", ec);
  for (int pid : processes) {
    fs::path network = fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", ec);
    if (!ec && network != own) networks.insert(network);
  }
  counts["network namespaces in use"] = static_cast<long>(networks.size());
  counts["mounts"] = lines_of("/proc/self/mountinfo");
  for (const char* kind : {"shm", "sem", "msg"})
    counts["SysV ids"] += lines_of(std::string("/proc/sysvipc/") + kind);
  return counts;
}

Counts count_all(Scope& scope) {
  Counts counts = count_remains(scope);
  counts["descriptors"] = entries_of("/proc/self/fd");
  counts["threads"] = entries_of("/proc/self/task");
  counts["resident KiB"] = own_status("VmRSS");
  counts["dying memory cgroups"] = dying_memory_groups();
  counts["network namespaces of the machine"] = slab_objects("net_namespace");
  return counts;
}

std::string growth(const Counts& before, const Counts& after, const Counts& tolerances) {
  std::string text;
  for (const auto& [name, now] : after) {
    auto was = before.find(name);
    auto tolerance = tolerances.find(name);
    long base = was == before.end() ? 0 : was->second;
    long most = base + (tolerance == tolerances.end() ? 0 : tolerance->second);
    if (now > most)
      text += name + ": " + std::to_string(base) + " -> " + std::to_string(now) + "\n";
  }
  return text;
}

}  // namespace asr::test
