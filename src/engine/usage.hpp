// What a sandbox has used.
#pragma once

#include <chrono>
#include <cstdint>

namespace asr {

struct Usage {
  std::chrono::microseconds cpu{0};
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_peak_bytes = 0;
  std::uint32_t pids = 0;
  std::uint64_t io_read_bytes = 0;
  std::uint64_t io_write_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint64_t disk_limit_bytes = 0;
  std::uint64_t inodes = 0;
  std::uint64_t oom_kills = 0;
};

}  // namespace asr
