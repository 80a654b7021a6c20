#include "store/session_records.hpp"

#include "store/rows.hpp"
#include "store/session_columns.hpp"

namespace asr {

namespace {

std::string named(std::string_view id) { return "session " + std::string(id); }

// So that a filter finds a label by an index instead of opening every object.
Result<void> index_labels(Database& database, std::string_view id, std::string_view labels) {
  TRY(database.execute("DELETE FROM session_labels WHERE session = ?1", id));
  // OR REPLACE: in JSON a name may come twice, and then the last one counts.
  TRY(
      database.execute("INSERT OR REPLACE INTO session_labels (session, name, value)"
                       " SELECT ?1, key, CASE WHEN type IN ('true', 'false') THEN type"
                       " ELSE CAST(value AS TEXT) END FROM json_each(?2)"
                       " WHERE type NOT IN ('null', 'object', 'array')",
                       id, labels));
  return {};
}

Result<void> check_labels(Database& database, std::string_view labels) {
  // CASE: json_type() fails on what json_valid() refuses.
  std::int64_t good = TRY(one_number(database, 0,
                                     "SELECT CASE WHEN json_valid(?1)"
                                     " THEN json_type(?1) = 'object' ELSE 0 END",
                                     labels));
  if (good == 0) return fail(Errc::invalid, "labels must be a JSON object");
  return {};
}

}  // namespace

void read_session(const Statement& row, SessionRecord& r) {
  row.read(r.id, r.owner, r.provider, r.environment, r.state, r.persistent, r.keep_artifacts,
           r.created_ms, r.expires_ms, r.left_ms, r.idle_ms, r.active_ms, r.ended_ms, r.end_reason,
           r.url, r.labels, r.sandbox, r.isolation, r.sealed, r.spec);
}

Result<void> insert_session(Database& database, const SessionRecord& r) {
  static const std::string kInsert = "INSERT INTO sessions (" + std::string(kSessionColumns) +
                                     ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"
                                     " ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
  TRY(check_labels(database, r.labels));
  TRY(database.execute(kInsert, r.id, r.owner, r.provider, r.environment, r.state, r.persistent,
                       r.keep_artifacts, r.created_ms, r.expires_ms, r.left_ms, r.idle_ms,
                       r.active_ms, r.ended_ms, r.end_reason, r.url, r.labels, r.sandbox,
                       r.isolation, Blob{r.sealed}, r.spec));
  return index_labels(database, r.id, r.labels);
}

Result<SessionRecord> find_session(Database& database, std::string_view id) {
  static const std::string kFind =
      "SELECT " + std::string(kSessionColumns) + " FROM sessions WHERE id = ?1";
  return must_exist(TRY(first_row(database, read_session, kFind, id)), named(id));
}

Result<void> update_session_state(Database& database, std::string_view id, std::string_view state,
                                  std::string_view reason, std::optional<std::int64_t> ended_ms) {
  return change_one(database, named(id),
                    "UPDATE sessions SET state = ?2, end_reason = ?3, ended_ms = ?4 WHERE id = ?1",
                    id, state, reason, ended_ms);
}

Result<void> update_session_times(Database& database, std::string_view id, std::int64_t expires_ms,
                                  std::int64_t idle_ms, std::int64_t active_ms) {
  return change_one(
      database, named(id),
      "UPDATE sessions SET expires_ms = ?2, idle_ms = ?3, active_ms = ?4 WHERE id = ?1", id,
      expires_ms, idle_ms, active_ms);
}

Result<void> update_session_rest(Database& database, std::string_view id, std::string_view state,
                                 std::int64_t expires_ms, std::int64_t left_ms) {
  return change_one(database, named(id),
                    "UPDATE sessions SET state = ?2, expires_ms = ?3, left_ms = ?4 WHERE id = ?1",
                    id, state, expires_ms, left_ms);
}

Result<void> update_session_labels(Database& database, std::string_view id,
                                   std::string_view labels) {
  TRY(check_labels(database, labels));
  TRY(change_one(database, named(id), "UPDATE sessions SET labels = ?2 WHERE id = ?1", id, labels));
  return index_labels(database, id, labels);
}

Result<void> update_session_sandbox(Database& database, std::string_view id,
                                    std::string_view sandbox, std::string_view isolation,
                                    std::string_view url) {
  return change_one(database, named(id),
                    "UPDATE sessions SET sandbox = ?2, isolation = ?3, url = ?4 WHERE id = ?1", id,
                    sandbox, isolation, url);
}

Result<void> update_session_request(Database& database, std::string_view id, std::string_view spec,
                                    std::string_view sealed) {
  return change_one(database, named(id), "UPDATE sessions SET spec = ?2, sealed = ?3 WHERE id = ?1",
                    id, spec, Blob{sealed});
}

Result<void> update_session_artifacts(Database& database, std::string_view id, bool keep,
                                      std::int64_t bytes) {
  return change_one(database, named(id),
                    "UPDATE sessions SET keep_artifacts = ?2, artifact_bytes = ?3 WHERE id = ?1",
                    id, keep, bytes);
}

Result<std::int64_t> forget_artifacts_beyond(Database& database, std::string_view owner,
                                             std::int64_t bytes) {
  return database.execute(
      "UPDATE sessions SET keep_artifacts = 0 WHERE id IN (SELECT id FROM (SELECT id,"
      " sum(artifact_bytes) OVER (ORDER BY ended_ms DESC, id) AS together FROM sessions"
      " WHERE owner = ?1 AND keep_artifacts = 1 AND ended_ms IS NOT NULL) WHERE together > ?2)",
      owner, bytes);
}

Result<std::vector<std::string>> sessions_with_artifacts(Database& database) {
  auto read = [](const Statement& row, std::string& id) { row.read(id); };
  return all_rows<std::string>(
      database, read, "SELECT id FROM sessions WHERE keep_artifacts = 1 AND ended_ms IS NOT NULL");
}

Result<void> touch_sessions(Database& database,
                            std::span<const std::pair<std::string, std::int64_t>> active_ms) {
  for (const auto& [id, ms] : active_ms)
    TRY(database.execute("UPDATE sessions SET active_ms = ?2 WHERE id = ?1", id, ms));
  return {};
}

Result<bool> remove_session(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM sessions WHERE id = ?1", id)) > 0;
}

Result<std::int64_t> remove_sessions_ended_before(Database& database, std::int64_t ms) {
  return database.execute("DELETE FROM sessions WHERE ended_ms < ?1", ms);
}

}  // namespace asr
