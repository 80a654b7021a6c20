// API keys, known by their hashes only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct KeyRecord {
  std::string id;
  std::string name;
  std::string role;    // admin, operator, user or viewer
  std::string prefix;  // the first characters, by which people recognise it
  std::string hash;    // sha256 of the key, 32 bytes
  std::int64_t created_ms = 0;
  std::int64_t expires_ms = 0;  // 0: never
  std::optional<std::int64_t> revoked_ms;
  std::int64_t last_used_ms = 0;  // 0: never
  std::string quotas;             // JSON
  friend bool operator==(const KeyRecord&, const KeyRecord&) = default;
};

Result<void> insert_key(Database& database, const KeyRecord& record);
Result<KeyRecord> find_key(Database& database, std::string_view id);
// Also those that are revoked or expired: the caller says why it refuses them.
Result<KeyRecord> find_key_by_hash(Database& database, std::string_view hash);
Result<std::vector<KeyRecord>> list_keys(Database& database);  // The oldest first.
// For good: a second time changes nothing, and nothing takes it back.
Result<void> revoke_key(Database& database, std::string_view id, std::int64_t at_ms);
Result<void> touch_key(Database& database, std::string_view id, std::int64_t at_ms);

}  // namespace asr
