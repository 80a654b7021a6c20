// What was done in a session as lines of a log: its events, its commands and what they wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/json.hpp"
#include "store/event_records.hpp"

namespace asr {

struct E2bLogEntry {
  std::int64_t at_ms = 0;
  std::string level = "info";
  std::string message;
  json::object fields;
};

struct E2bLogWish {
  std::int64_t from_ms = 0;  // the first moment; backward: the last
  std::size_t limit = 1000;
  bool backward = false;        // the newest first
  std::string level = "debug";  // and worse
  std::string search;           // in the message; empty: any
};

// `folder`: of the session's history.
Result<std::vector<E2bLogEntry>> e2b_logs(const std::filesystem::path& folder,
                                          const std::vector<EventRecord>& events,
                                          const E2bLogWish& wish);
json::object json_of(const E2bLogEntry& entry);

}  // namespace asr
