#include "store/webhook_deliveries.hpp"

#include "store/paging.hpp"
#include "store/rows.hpp"

namespace asr {

namespace {

void read_delivery(const Statement& row, DeliveryRecord& r) {
  row.read(r.id, r.webhook, r.event_id, r.attempts, r.next_ms, r.state);
}

std::string named(std::int64_t id) { return "delivery " + std::to_string(id); }

}  // namespace

Result<void> enqueue_delivery(Database& database, std::string_view webhook, std::int64_t event_id,
                              std::int64_t next_ms) {
  TRY(database.execute(
      "INSERT INTO webhook_deliveries (webhook, event_id, attempts, next_ms, state)"
      " VALUES (?1, ?2, 0, ?3, 'pending')"
      " ON CONFLICT (webhook, event_id) DO NOTHING",
      webhook, event_id, next_ms));
  return {};
}

Result<std::vector<DeliveryRecord>> due_deliveries(Database& database, std::int64_t now_ms,
                                                   std::int64_t limit) {
  return all_rows(database, read_delivery,
                  "SELECT d.id, d.webhook, d.event_id, d.attempts, d.next_ms, d.state"
                  " FROM webhook_deliveries AS d JOIN webhooks AS w ON w.id = d.webhook"
                  " WHERE d.state = 'pending' AND d.next_ms <= ?1 AND w.active = 1"
                  " ORDER BY d.next_ms, d.id LIMIT ?2",
                  now_ms, TRY(checked_limit(limit)));
}

Result<std::vector<DeliveryRecord>> list_deliveries(Database& database, std::string_view webhook,
                                                    std::int64_t limit) {
  return all_rows(database, read_delivery,
                  "SELECT id, webhook, event_id, attempts, next_ms, state FROM webhook_deliveries"
                  " WHERE webhook = ?1 ORDER BY id DESC LIMIT ?2",
                  webhook, TRY(checked_limit(limit)));
}

Result<void> delivery_done(Database& database, std::int64_t id) {
  TRY(change_one(database, named(id),
                 "UPDATE webhook_deliveries SET state = 'done', attempts = attempts + 1"
                 " WHERE id = ?1",
                 id));
  TRY(
      database.execute("UPDATE webhooks SET failures = 0, last_error = ''"
                       " WHERE id = (SELECT webhook FROM webhook_deliveries WHERE id = ?1)",
                       id));
  return {};
}

Result<void> delivery_failed(Database& database, std::int64_t id,
                             std::optional<std::int64_t> next_ms, std::string_view error) {
  TRY(change_one(database, named(id),
                 "UPDATE webhook_deliveries SET attempts = attempts + 1,"
                 " state = iif(?2 IS NULL, 'failed', 'pending'), next_ms = coalesce(?2, next_ms)"
                 " WHERE id = ?1",
                 id, next_ms));
  TRY(
      database.execute("UPDATE webhooks SET failures = failures + 1, last_error = ?2"
                       " WHERE id = (SELECT webhook FROM webhook_deliveries WHERE id = ?1)",
                       id, error));
  return {};
}

Result<std::int64_t> trim_deliveries(Database& database, std::string_view webhook,
                                     std::int64_t keep) {
  return database.execute(
      "DELETE FROM webhook_deliveries WHERE webhook = ?1"
      " AND state <> 'pending' AND id <= (SELECT id FROM webhook_deliveries"
      " WHERE webhook = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
      webhook, keep);
}

}  // namespace asr
