// What sessions have used, sampled over time. One sample per session and millisecond.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct UsageRecord {
  std::string session;
  std::int64_t at_ms = 0;
  std::int64_t cpu_us = 0;  // since the session began
  std::int64_t memory_bytes = 0;
  std::int64_t memory_peak = 0;
  std::int64_t pids = 0;
  std::int64_t disk_bytes = 0;
  friend bool operator==(const UsageRecord&, const UsageRecord&) = default;
};

// Errc::conflict when there is no such session.
Result<void> append_usage(Database& database, const UsageRecord& record);
// From `from_ms` on, the oldest first.
Result<std::vector<UsageRecord>> list_usage(Database& database, std::string_view session,
                                            std::int64_t from_ms, std::int64_t limit);
// Keeps the newest `keep` samples of a session. How many were removed.
Result<std::int64_t> trim_usage(Database& database, std::string_view session, std::int64_t keep);

}  // namespace asr
