#include "policy/limits.hpp"

#include "base/units.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kLeastMemory = 16ULL << 20;
constexpr std::uint64_t kLeastDisk = 1ULL << 20;
constexpr std::uint64_t kLeastImage = 16ULL << 20;  // A file system needs room of its own.
constexpr std::uint32_t kMostPids = 30000;          // A machine has 32768 by default.

}  // namespace

Result<void> check(const Limits& limits, FilesIn files) {
  if (limits.memory_bytes < kLeastMemory)
    return fail(Errc::invalid,
                "memory limit " + format_bytes(limits.memory_bytes) + " is too small",
                "give at least " + format_bytes(kLeastMemory));
  std::uint64_t least = files == FilesIn::memory ? kLeastDisk : kLeastImage;
  if (limits.disk_bytes < least)
    return fail(Errc::invalid, "disk limit " + format_bytes(limits.disk_bytes) + " is too small",
                "give at least " + format_bytes(least));
  // Files in memory are charged to the sandbox: a full disk must leave room to run.
  if (files == FilesIn::memory && limits.disk_bytes > limits.memory_bytes / 2)
    return fail(
        Errc::invalid,
        "disk limit " + format_bytes(limits.disk_bytes) +
            " is more than half of the memory limit " + format_bytes(limits.memory_bytes),
        "raise memory to at least " + format_bytes(limits.disk_bytes * 2) + " or lower disk");
  if (limits.pids < 1 || limits.pids > kMostPids)
    return fail(Errc::invalid, "pids limit " + std::to_string(limits.pids) + " is out of range",
                "give 1 to " + std::to_string(kMostPids));
  if (limits.milli_cpus != 0 && limits.milli_cpus < 10)
    return fail(Errc::invalid, "cpu limit below 0.01", "give at least 0.01, or 0 for no limit");
  if (limits.inodes < 256)
    return fail(Errc::invalid, "inode limit " + std::to_string(limits.inodes) + " is too small",
                "give at least 256");
  if (limits.open_files < 16)
    return fail(Errc::invalid,
                "open file limit " + std::to_string(limits.open_files) + " is too small",
                "give at least 16");
  if (limits.wall_time.count() < 0 || limits.cpu_time.count() < 0)
    return fail(Errc::invalid, "a time limit is negative");
  return {};
}

}  // namespace asr
