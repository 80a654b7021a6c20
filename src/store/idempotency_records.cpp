#include "store/idempotency_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

void read_idempotency(const Statement& row, IdempotencyRecord& r) {
  row.read(r.owner, r.key, r.request_hash, r.session, r.status, r.response, r.created_ms);
}

}  // namespace

Result<Claim> claim_idempotency(Database& database, std::string_view owner, std::string_view key,
                                std::string_view request_hash, std::int64_t now_ms) {
  std::int64_t added = TRY(database.execute(
      "INSERT INTO idempotency (owner, key, request_hash, session, status, response, created_ms)"
      " VALUES (?1, ?2, ?3, '', 0, x'', ?4) ON CONFLICT (owner, key) DO NOTHING",
      owner, key, Blob{request_hash}, now_ms));
  auto found = TRY(first_row(database, read_idempotency,
                             "SELECT owner, key, request_hash, session, status, response,"
                             " created_ms FROM idempotency WHERE owner = ?1 AND key = ?2",
                             owner, key));
  auto record = TRY(must_exist(std::move(found), "request under this idempotency key"));
  Claimed outcome = added > 0                             ? Claimed::mine
                    : record.request_hash == request_hash ? Claimed::same
                                                          : Claimed::other_request;
  return Claim{outcome, std::move(record)};
}

Result<void> finish_idempotency(Database& database, const IdempotencyRecord& r) {
  return change_one(database, "request under this idempotency key",
                    "UPDATE idempotency SET session = ?3, status = ?4, response = ?5"
                    " WHERE owner = ?1 AND key = ?2",
                    r.owner, r.key, r.session, r.status, Blob{r.response});
}

Result<bool> forget_idempotency(Database& database, std::string_view owner, std::string_view key) {
  return TRY(database.execute("DELETE FROM idempotency WHERE owner = ?1 AND key = ?2", owner,
                              key)) > 0;
}

Result<std::int64_t> remove_idempotency_before(Database& database, std::int64_t ms) {
  return database.execute("DELETE FROM idempotency WHERE created_ms < ?1", ms);
}

}  // namespace asr
