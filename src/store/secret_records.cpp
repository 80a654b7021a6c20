#include "store/secret_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

constexpr std::string_view kSelect =
    "SELECT id, owner, name, version, metadata, created_ms, updated_ms, sealed FROM secrets";

void read_secret(const Statement& row, SecretRecord& r) {
  row.read(r.id, r.owner, r.name, r.version, r.metadata, r.created_ms, r.updated_ms, r.sealed);
}

}  // namespace

Result<void> insert_secret(Database& database, const SecretRecord& r) {
  TRY(database.execute(
      "INSERT INTO secrets (id, owner, name, version, metadata, created_ms,"
      " updated_ms, sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      r.id, r.owner, r.name, r.version, r.metadata, r.created_ms, r.updated_ms, Blob{r.sealed}));
  return {};
}

Result<void> update_secret(Database& database, const SecretRecord& r) {
  return change_one(database, "secret " + r.name,
                    "UPDATE secrets SET version = ?2, metadata = ?3, updated_ms = ?4, sealed = ?5"
                    " WHERE id = ?1",
                    r.id, r.version, r.metadata, r.updated_ms, Blob{r.sealed});
}

Result<SecretRecord> find_secret(Database& database, std::string_view owner,
                                 std::string_view id_or_name) {
  static const std::string kFind =
      std::string(kSelect) + " WHERE owner = ?1 AND (id = ?2 OR name = ?2)";
  return must_exist(TRY(first_row(database, read_secret, kFind, owner, id_or_name)),
                    "secret " + std::string(id_or_name));
}

Result<std::vector<SecretRecord>> list_secrets(Database& database, std::string_view owner) {
  static const std::string kList = std::string(kSelect) + " WHERE owner = ?1 ORDER BY name";
  return all_rows(database, read_secret, kList, owner);
}

Result<bool> remove_secret(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM secrets WHERE id = ?1", id)) > 0;
}

}  // namespace asr
