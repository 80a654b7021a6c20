// Sessions as they were last seen. Times are milliseconds since 1970.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct SessionRecord {
  std::string id;
  std::string owner;
  std::string provider;
  std::string environment;
  std::string state;
  std::string spec;       // JSON
  std::string labels;     // a JSON object
  std::string isolation;  // JSON
  std::string url;
  std::string sealed;   // what must stay secret, sealed by the caller
  std::string sandbox;  // what the provider needs to find it again
  bool persistent = false;
  bool keep_artifacts = false;  // when it ends
  std::int64_t created_ms = 0;
  std::int64_t expires_ms = 0;  // 0: never
  std::int64_t left_ms = 0;     // of its time, while it is paused; 0: no end was set
  std::int64_t idle_ms = 0;     // how long it may be idle; 0: for ever
  std::int64_t active_ms = 0;   // when it was last used
  std::optional<std::int64_t> ended_ms;
  std::string end_reason;
  friend bool operator==(const SessionRecord&, const SessionRecord&) = default;
};

// Labels that are not a JSON object are Errc::invalid.
Result<void> insert_session(Database& database, const SessionRecord& record);
Result<SessionRecord> find_session(Database& database, std::string_view id);

// Each of these is Errc::not_found when there is no such session.
Result<void> update_session_state(Database& database, std::string_view id, std::string_view state,
                                  std::string_view reason, std::optional<std::int64_t> ended_ms);
Result<void> update_session_times(Database& database, std::string_view id, std::int64_t expires_ms,
                                  std::int64_t idle_ms, std::int64_t active_ms);
// It is paused, or goes on.
Result<void> update_session_rest(Database& database, std::string_view id, std::string_view state,
                                 std::int64_t expires_ms, std::int64_t left_ms);
Result<void> update_session_labels(Database& database, std::string_view id,
                                   std::string_view labels);
Result<void> update_session_sandbox(Database& database, std::string_view id,
                                    std::string_view sandbox, std::string_view isolation,
                                    std::string_view url);

Result<void> update_session_request(Database& database, std::string_view id, std::string_view spec,
                                    std::string_view sealed);

// `bytes`: how much they are, once it ends.
Result<void> update_session_artifacts(Database& database, std::string_view id, bool keep,
                                      std::int64_t bytes);
// Of the owner's sessions that have ended, the newest keep theirs, up to so much together. How many
// do no longer.
Result<std::int64_t> forget_artifacts_beyond(Database& database, std::string_view owner,
                                             std::int64_t bytes);
// Those that have ended and keep theirs.
Result<std::vector<std::string>> sessions_with_artifacts(Database& database);

// Those that have gone in the meantime are passed over.
Result<void> touch_sessions(Database& database,
                            std::span<const std::pair<std::string, std::int64_t>> active_ms);

// With its labels, shares, usage and uses of volumes. Whether it was there.
Result<bool> remove_session(Database& database, std::string_view id);
Result<std::int64_t> remove_sessions_ended_before(Database& database, std::int64_t ms);

struct SessionFilter {
  std::optional<std::string> visible_to;      // owned by or shared with this key
  std::vector<std::string> states;            // any of these; empty: all
  std::map<std::string, std::string> labels;  // every one of these
  std::string environment;                    // empty: any
  std::string provider;                       // empty: any
  std::optional<std::int64_t> created_after_ms;
  enum class Order { newest_first, oldest_first } order = Order::newest_first;
  std::int64_t limit = 100;
  std::string cursor;  // from the page before, of the same order; empty: the first page
};

struct SessionPage {
  std::vector<SessionRecord> sessions;  // in their order; of the same time, by id
  std::string cursor;                   // empty: this was the last page
};

Result<SessionPage> list_sessions(Database& database, const SessionFilter& filter);
// How many fit, whatever the page.
Result<std::int64_t> count_sessions(Database& database, const SessionFilter& filter);

}  // namespace asr
