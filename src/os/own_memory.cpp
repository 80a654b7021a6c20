#include "os/own_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>

#include "os/file.hpp"

namespace asr {

Result<void> let_go_of_code() {
  constexpr std::size_t kMostMaps = 1 << 20;
  std::string maps = TRY(read_bytes(AT_FDCWD, "/proc/self/maps", kMostMaps));
  for (std::size_t at = 0; at < maps.size();) {
    std::string line = maps.substr(at, maps.find('\n', at) - at);
    at += line.size() + 1;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3)
      return fail(Errc::internal, "a line of /proc/self/maps makes no sense");
    // Only what nobody can have written to: anything else would be lost.
    bool is_code = std::string_view(rights) == "r-xp" && line.find('/') != std::string::npos;
    if (is_code && ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) != 0)
      return fail_errno("madvise");
  }
  return {};
}

}  // namespace asr
