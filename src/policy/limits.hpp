// How much a sandbox may use. Pure values; who enforces them is another matter (isolation.hpp).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/result.hpp"

namespace asr {

struct Limits {
  // Of the sandbox as a whole.
  std::uint64_t memory_bytes = 512ULL << 20;
  std::uint32_t milli_cpus = 500;  // 1000 is one core; 0 is no limit
  std::uint32_t pids = 256;        // processes and threads of the workload
  // Everything written, /tmp and /dev/shm included; of a persistent disk, its size when it is made.
  std::uint64_t disk_bytes = 256ULL << 20;
  std::uint64_t inodes = 65536;
  std::uint32_t open_files = 4096;  // per process

  // Of one execution; zero is no limit.
  std::chrono::milliseconds wall_time{0};
  std::chrono::milliseconds cpu_time{0};
  std::uint64_t output_bytes = 64ULL << 20;  // stdout and stderr together

  friend bool operator==(const Limits&, const Limits&) = default;
};

// Where what a sandbox writes lies: memory is charged to it, a disk is not.
enum class FilesIn { memory, disk };

// Refuses values that could not work, with what to write instead.
Result<void> check(const Limits& limits, FilesIn files = FilesIn::memory);

}  // namespace asr
