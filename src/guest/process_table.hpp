// What /proc says about the sandbox's processes. Bounded by the sandbox's own limit on their
// number.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

struct ProcessStat {
  std::int32_t pid = 0;
  std::int32_t parent = 0;
  std::int32_t session = 0;
  char state = '?';
  std::chrono::milliseconds cpu{0};           // its own
  std::chrono::milliseconds children_cpu{0};  // of those it has waited for
  std::uint64_t rss_bytes = 0;
};

// One line of /proc/PID/stat. The program chooses its name, which may hold spaces and brackets.
Result<ProcessStat> parse_stat(std::string_view line);

// Everything but pid 1.
std::vector<ProcessStat> all_processes();

// `root`, what descends from it and what is in its session.
std::vector<ProcessStat> tree_of(std::int32_t root, const std::vector<ProcessStat>& all);

// For the user: with owner and command line, and without the guest's own workers.
std::vector<wire::Process> describe_processes(const std::vector<std::int32_t>& hidden);

}  // namespace asr
