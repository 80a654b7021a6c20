// What webhooks have yet to be told, so that a restart forgets nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct DeliveryRecord {
  std::int64_t id = 0;
  std::string webhook;
  std::int64_t event_id = 0;
  std::int64_t attempts = 0;
  std::int64_t next_ms = 0;
  std::string state;  // pending, done or failed
  friend bool operator==(const DeliveryRecord&, const DeliveryRecord&) = default;
};

// Once for each webhook and event: a second time changes nothing and is no error.
Result<void> enqueue_delivery(Database& database, std::string_view webhook, std::int64_t event_id,
                              std::int64_t next_ms);
// Those of active webhooks, the most overdue first.
Result<std::vector<DeliveryRecord>> due_deliveries(Database& database, std::int64_t now_ms,
                                                   std::int64_t limit);
Result<std::vector<DeliveryRecord>> list_deliveries(Database& database, std::string_view webhook,
                                                    std::int64_t limit);  // The newest first.

// Both also keep the webhook's count of failures.
Result<void> delivery_done(Database& database, std::int64_t id);
// Without `next_ms` it is given up.
Result<void> delivery_failed(Database& database, std::int64_t id,
                             std::optional<std::int64_t> next_ms, std::string_view error);

// Removes the oldest that are no longer pending. How many.
Result<std::int64_t> trim_deliveries(Database& database, std::string_view webhook,
                                     std::int64_t keep);

}  // namespace asr
