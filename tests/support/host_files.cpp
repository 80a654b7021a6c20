#include "support/host_files.hpp"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/unique_fd.hpp"

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

}  // namespace asr::test
