#include "store/volume_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

void read_volume(const Statement& row, VolumeRecord& r) {
  row.read(r.id, r.owner, r.name, r.size_limit, r.created_ms);
}

void read_use(const Statement& row, VolumeUse& r) {
  row.read(r.volume, r.session, r.path, r.read_only);
}

std::string named(std::string_view name) { return "volume " + std::string(name); }

}  // namespace

Result<void> insert_volume(Database& database, const VolumeRecord& r) {
  TRY(
      database.execute("INSERT INTO volumes (id, owner, name, size_limit, created_ms)"
                       " VALUES (?1, ?2, ?3, ?4, ?5)",
                       r.id, r.owner, r.name, r.size_limit, r.created_ms));
  return {};
}

Result<VolumeRecord> find_volume(Database& database, std::string_view id) {
  return must_exist(
      TRY(first_row(database, read_volume,
                    "SELECT id, owner, name, size_limit, created_ms FROM volumes WHERE id = ?1",
                    id)),
      named(id));
}

Result<VolumeRecord> find_volume_by_name(Database& database, std::string_view owner,
                                         std::string_view name) {
  return must_exist(TRY(first_row(database, read_volume,
                                  "SELECT id, owner, name, size_limit, created_ms FROM volumes"
                                  " WHERE owner = ?1 AND name = ?2",
                                  owner, name)),
                    named(name));
}

Result<std::vector<VolumeRecord>> list_volumes(Database& database, std::string_view owner) {
  return all_rows(database, read_volume,
                  "SELECT id, owner, name, size_limit, created_ms FROM volumes WHERE owner = ?1"
                  " ORDER BY name",
                  owner);
}

Result<bool> remove_volume(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM volumes WHERE id = ?1", id)) > 0;
}

Result<void> add_volume_use(Database& database, const VolumeUse& use) {
  TRY(
      database.execute("INSERT INTO volume_uses (volume, session, path, read_only)"
                       " VALUES (?1, ?2, ?3, ?4)",
                       use.volume, use.session, use.path, use.read_only));
  return {};
}

Result<std::vector<VolumeUse>> uses_of_volume(Database& database, std::string_view volume) {
  return all_rows(database, read_use,
                  "SELECT volume, session, path, read_only FROM volume_uses WHERE volume = ?1"
                  " ORDER BY session, path",
                  volume);
}

Result<std::vector<VolumeUse>> volumes_of_session(Database& database, std::string_view session) {
  return all_rows(database, read_use,
                  "SELECT volume, session, path, read_only FROM volume_uses WHERE session = ?1"
                  " ORDER BY path",
                  session);
}

Result<std::int64_t> remove_volume_uses(Database& database, std::string_view session) {
  return database.execute("DELETE FROM volume_uses WHERE session = ?1", session);
}

}  // namespace asr
