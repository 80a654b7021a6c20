// Where owners want to be told of events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct WebhookRecord {
  std::string id;
  std::string owner;
  std::string url;
  std::string events;  // a JSON list of types
  std::string sealed;  // the secret that signs deliveries, sealed by the caller
  bool active = true;
  std::int64_t created_ms = 0;
  std::int64_t failures = 0;  // in a row
  std::string last_error;
  friend bool operator==(const WebhookRecord&, const WebhookRecord&) = default;
};

Result<void> insert_webhook(Database& database, const WebhookRecord& record);
Result<WebhookRecord> find_webhook(Database& database, std::string_view id);
Result<std::vector<WebhookRecord>> list_all_webhooks(Database& database);
Result<std::vector<WebhookRecord>> list_webhooks(Database& database, std::string_view owner);
// Everything but id, owner and created_ms.
Result<void> update_webhook(Database& database, const WebhookRecord& record);
// With its deliveries. Whether it was there.
Result<bool> remove_webhook(Database& database, std::string_view id);

}  // namespace asr
