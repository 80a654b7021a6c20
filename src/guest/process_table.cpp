#include "guest/process_table.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "os/file.hpp"

namespace asr {

namespace {

constexpr std::size_t kMaxCommandLine = 4096;

std::chrono::milliseconds from_ticks(std::uint64_t ticks) {
  static const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return std::chrono::milliseconds(ticks * 1000 / per_second);
}

std::vector<int> all_pids() {
  std::vector<int> pids;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return pids;
  while (dirent* entry = ::readdir(proc.get())) {
    int pid = 0;
    std::string_view name = entry->d_name;
    auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (ec == std::errc() && end == name.data() + name.size() && pid > 1) pids.push_back(pid);
  }
  return pids;
}

}  // namespace

Result<ProcessStat> parse_stat(std::string_view line) {
  ProcessStat stat;
  std::from_chars(line.data(), line.data() + line.size(), stat.pid);
  std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= line.size())
    return fail(Errc::internal, "not a stat line");
  line.remove_prefix(name_end + 2);
  stat.state = line[0];
  // Fields from the third (state) on; see proc(5).
  std::vector<std::uint64_t> fields;
  while (!line.empty() && fields.size() < 22) {
    std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    std::int64_t value = 0;
    std::from_chars(word.data(), word.data() + word.size(), value);
    fields.push_back(static_cast<std::uint64_t>(value));
  }
  if (fields.size() < 22) return fail(Errc::internal, "short stat line");
  stat.parent = static_cast<std::int32_t>(fields[1]);
  stat.session = static_cast<std::int32_t>(fields[3]);
  stat.cpu = from_ticks(fields[11] + fields[12]);
  stat.children_cpu = from_ticks(fields[13] + fields[14]);
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  stat.rss_bytes = fields[21] * page;
  return stat;
}

std::vector<ProcessStat> all_processes() {
  std::vector<ProcessStat> stats;
  for (int pid : all_pids()) {
    auto line = read_small_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/stat", 4096);
    if (!line) continue;  // It ended meanwhile.
    if (auto stat = parse_stat(*line)) stats.push_back(*stat);
  }
  return stats;
}

std::vector<ProcessStat> tree_of(std::int32_t root, const std::vector<ProcessStat>& all) {
  std::vector<ProcessStat> tree;
  std::vector<std::int32_t> pids{root};
  auto known = [&](std::int32_t pid) {
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (const ProcessStat& stat : all) {
      if (known(stat.pid) || !(known(stat.parent) || stat.session == root)) continue;
      pids.push_back(stat.pid);
      grown = true;
    }
  }
  for (const ProcessStat& stat : all)
    if (known(stat.pid)) tree.push_back(stat);
  return tree;
}

std::vector<wire::Process> describe_processes(const std::vector<std::int32_t>& hidden) {
  std::vector<wire::Process> processes;
  for (const ProcessStat& stat : all_processes()) {
    if (std::find(hidden.begin(), hidden.end(), stat.pid) != hidden.end()) continue;
    wire::Process process;
    process.pid = stat.pid;
    process.parent = stat.parent;
    process.state = static_cast<std::uint8_t>(stat.state);
    process.cpu = stat.cpu;
    process.rss_bytes = stat.rss_bytes;
    std::string dir = "/proc/" + std::to_string(stat.pid);
    struct stat info {};
    if (::stat(dir.c_str(), &info) != 0) continue;
    process.uid = info.st_uid;
    UniqueFd fd(::open((dir + "/cmdline").c_str(), O_RDONLY | O_CLOEXEC));
    std::string text(kMaxCommandLine, '\0');
    ssize_t n = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
    std::string_view rest(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    while (!rest.empty()) {
      std::string_view argument = rest.substr(0, rest.find('\0'));
      process.argv.emplace_back(argument);
      rest.remove_prefix(std::min(rest.size(), argument.size() + 1));
    }
    if (process.argv.empty()) {
      if (auto name = read_small_file(AT_FDCWD, dir + "/comm", 64))
        process.argv.push_back("[" + *name + "]");
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

}  // namespace asr
