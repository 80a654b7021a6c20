// Requests that may come twice and must be done once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct IdempotencyRecord {
  std::string owner;
  std::string key;           // what the client calls the request
  std::string request_hash;  // what it asked for
  std::string session;       // empty until it is known
  std::int64_t status = 0;   // 0: still at work
  std::string response;      // sealed by the caller if there are secrets in it
  std::int64_t created_ms = 0;
  friend bool operator==(const IdempotencyRecord&, const IdempotencyRecord&) = default;
};

enum class Claimed {
  mine,           // nobody had it: do the work, then finish or forget
  same,           // the same request came before: give its answer, or say that it is at work
  other_request,  // the key was used for something else
};

struct Claim {
  Claimed outcome = Claimed::mine;
  IdempotencyRecord record;  // With `other_request` the other one, which is not for the client.
};

Result<Claim> claim_idempotency(Database& database, std::string_view owner, std::string_view key,
                                std::string_view request_hash, std::int64_t now_ms);
Result<void> finish_idempotency(Database& database, const IdempotencyRecord& record);
// For work that failed and may be tried again.
Result<bool> forget_idempotency(Database& database, std::string_view owner, std::string_view key);
Result<std::int64_t> remove_idempotency_before(Database& database, std::int64_t ms);

}  // namespace asr
