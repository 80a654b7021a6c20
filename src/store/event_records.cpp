#include "store/event_records.hpp"

#include <algorithm>

#include "store/paging.hpp"
#include "store/rows.hpp"

namespace asr {

namespace {

void read_event(const Statement& row, EventRecord& r) {
  row.read(r.id, r.at_ms, r.type, r.session, r.owner, r.data);
}

}  // namespace

Result<std::int64_t> append_event(Database& database, const EventRecord& r) {
  TRY(
      database.execute("INSERT INTO events (at_ms, type, session, owner, data)"
                       " VALUES (?1, ?2, ?3, ?4, ?5)",
                       r.at_ms, r.type, r.session, r.owner, r.data));
  return database.last_insert_id();
}

Result<std::vector<EventRecord>> list_events(Database& database, const EventFilter& filter) {
  std::int64_t limit = TRY(checked_limit(filter.limit));
  std::string sql = "SELECT id, at_ms, type, session, owner, data FROM events WHERE id > ?1";
  if (filter.owner) sql += " AND owner = ?3";
  if (filter.session) sql += " AND session = ?4";
  sql += " ORDER BY id LIMIT ?2";
  Statement statement = TRY(database.query(sql, filter.after, limit));
  if (filter.owner || filter.session) TRY(statement.bind(filter.owner));
  if (filter.session) TRY(statement.bind(filter.session));
  return remaining_rows(statement, read_event);
}

Result<std::int64_t> newest_event_id(Database& database) {
  return one_number(database, 0, "SELECT max(id) FROM events");
}

Result<std::int64_t> oldest_event_id(Database& database) {
  return one_number(database, 0, "SELECT min(id) FROM events");
}

// The newest stays, or its number would be given again.
Result<std::int64_t> trim_events(Database& database, std::int64_t keep) {
  return database.execute(
      "DELETE FROM events WHERE id <="
      " (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET ?1)",
      std::max<std::int64_t>(keep, 1));
}

}  // namespace asr
