#include "support/host_files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "base/unique_fd.hpp"
#include "os/cgroup.hpp"

namespace asr::test {

std::string read_fd(int fd) {
  std::string data;
  std::string chunk(65536, '\0');
  for (;;) {
    ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return data;
    data.append(chunk.data(), static_cast<std::size_t>(n));
  }
}

std::string read_host_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd ? read_fd(fd.get()) : std::string();
}

bool process_lives(int pid) {
  std::string stat = read_host_file("/proc/" + std::to_string(pid) + "/stat");
  std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat[name_end + 2] != 'Z' && stat[name_end + 2] != 'X';
}

void signal_one(int pid, int signal) {
  if (pid <= 1) throw std::logic_error("no process to be signalled: " + std::to_string(pid));
  ::kill(pid, signal);
}

std::vector<std::string> groups_of(const std::string& instance, bool in_use) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  auto hierarchies = find_hierarchies();
  if (!hierarchies) return found;
  for (const Hierarchy& hierarchy : *hierarchies) {
    fs::path place = fs::path(hierarchy.mount) / "agent-sandbox" / instance;
    std::error_code ec;
    if (fs::is_directory(place, ec) && !in_use) found.push_back(place);
    for (fs::recursive_directory_iterator at(place, ec), end; !ec && at != end; at.increment(ec))
      if (at->is_directory(ec) && (!in_use || !read_host_file(at->path() / "cgroup.procs").empty()))
        found.push_back(at->path());
  }
  return found;
}

std::string group_of(int pid, const std::string& controller) {
  auto hierarchies = find_hierarchies();
  if (!hierarchies) return "";
  std::istringstream lines(read_host_file("/proc/" + std::to_string(pid) + "/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    for (const Hierarchy& hierarchy : *hierarchies) {
      if (!hierarchy.has(controller)) continue;
      if (hierarchy.v2 ? names == ",," : names.find("," + controller + ",") != std::string::npos)
        return hierarchy.mount + line.substr(second + 1);
    }
  }
  return "";
}

}  // namespace asr::test
