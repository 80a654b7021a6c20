// What happened, in order. Ids only grow and are never given twice, so a reader that remembers the
// last one misses nothing that is still kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct EventRecord {
  std::int64_t id = 0;  // given by append_event()
  std::int64_t at_ms = 0;
  std::string type;
  std::string session;
  std::string owner;
  std::string data;  // JSON
  friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

struct EventFilter {
  std::int64_t after = 0;
  std::optional<std::string> owner;
  std::optional<std::string> session;
  std::int64_t limit = 100;
};

Result<std::int64_t> append_event(Database& database, const EventRecord& record);
Result<std::vector<EventRecord>> list_events(Database& database, const EventFilter& filter);
Result<std::int64_t> newest_event_id(Database& database);                 // 0: there was never one.
Result<std::int64_t> oldest_event_id(Database& database);                 // 0: none is kept.
Result<std::int64_t> trim_events(Database& database, std::int64_t keep);  // How many were removed.

}  // namespace asr
