#include "store/key_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

constexpr std::string_view kFindById =
    "SELECT id, name, role, prefix, hash, created_ms, expires_ms, revoked_ms, last_used_ms, quotas"
    " FROM api_keys WHERE id = ?1";
constexpr std::string_view kFindByHash =
    "SELECT id, name, role, prefix, hash, created_ms, expires_ms, revoked_ms, last_used_ms, quotas"
    " FROM api_keys WHERE hash = ?1";
constexpr std::string_view kList =
    "SELECT id, name, role, prefix, hash, created_ms, expires_ms, revoked_ms, last_used_ms, quotas"
    " FROM api_keys ORDER BY created_ms, id";

void read_key(const Statement& row, KeyRecord& r) {
  row.read(r.id, r.name, r.role, r.prefix, r.hash, r.created_ms, r.expires_ms, r.revoked_ms,
           r.last_used_ms, r.quotas);
}

std::string named(std::string_view id) { return "API key " + std::string(id); }

}  // namespace

Result<void> insert_key(Database& database, const KeyRecord& r) {
  TRY(
      database.execute("INSERT INTO api_keys (id, name, role, prefix, hash, created_ms, expires_ms,"
                       " revoked_ms, last_used_ms, quotas)"
                       " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                       r.id, r.name, r.role, r.prefix, Blob{r.hash}, r.created_ms, r.expires_ms,
                       r.revoked_ms, r.last_used_ms, r.quotas));
  return {};
}

Result<KeyRecord> find_key(Database& database, std::string_view id) {
  return must_exist(TRY(first_row(database, read_key, kFindById, id)), named(id));
}

Result<KeyRecord> find_key_by_hash(Database& database, std::string_view hash) {
  return must_exist(TRY(first_row(database, read_key, kFindByHash, Blob{hash})), "such API key");
}

Result<std::vector<KeyRecord>> list_keys(Database& database) {
  return all_rows(database, read_key, kList);
}

Result<void> revoke_key(Database& database, std::string_view id, std::int64_t at_ms) {
  return change_one(database, named(id),
                    "UPDATE api_keys SET revoked_ms = coalesce(revoked_ms, ?2) WHERE id = ?1", id,
                    at_ms);
}

Result<void> touch_key(Database& database, std::string_view id, std::int64_t at_ms) {
  return change_one(database, named(id), "UPDATE api_keys SET last_used_ms = ?2 WHERE id = ?1", id,
                    at_ms);
}

}  // namespace asr
