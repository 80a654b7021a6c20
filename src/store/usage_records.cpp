#include "store/usage_records.hpp"

#include "store/paging.hpp"
#include "store/rows.hpp"

namespace asr {

namespace {

void read_usage(const Statement& row, UsageRecord& r) {
  row.read(r.session, r.at_ms, r.cpu_us, r.memory_bytes, r.memory_peak, r.pids, r.disk_bytes);
}

}  // namespace

Result<void> append_usage(Database& database, const UsageRecord& r) {
  TRY(database.execute(
      "INSERT OR REPLACE INTO usage (session, at_ms, cpu_us, memory_bytes,"
      " memory_peak, pids, disk_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
      r.session, r.at_ms, r.cpu_us, r.memory_bytes, r.memory_peak, r.pids, r.disk_bytes));
  return {};
}

Result<std::vector<UsageRecord>> list_usage(Database& database, std::string_view session,
                                            std::int64_t from_ms, std::int64_t limit) {
  return all_rows(database, read_usage,
                  "SELECT session, at_ms, cpu_us, memory_bytes, memory_peak, pids, disk_bytes"
                  " FROM usage WHERE session = ?1 AND at_ms >= ?2 ORDER BY at_ms LIMIT ?3",
                  session, from_ms, TRY(checked_limit(limit)));
}

Result<std::int64_t> trim_usage(Database& database, std::string_view session, std::int64_t keep) {
  return database.execute(
      "DELETE FROM usage WHERE session = ?1 AND at_ms <="
      " (SELECT at_ms FROM usage WHERE session = ?1"
      " ORDER BY at_ms DESC LIMIT 1 OFFSET ?2)",
      session, keep);
}

}  // namespace asr
