#include "store/webhook_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

void read_webhook(const Statement& row, WebhookRecord& r) {
  row.read(r.id, r.owner, r.url, r.events, r.sealed, r.active, r.created_ms, r.failures,
           r.last_error);
}

std::string named(std::string_view id) { return "webhook " + std::string(id); }

}  // namespace

Result<void> insert_webhook(Database& database, const WebhookRecord& r) {
  TRY(
      database.execute("INSERT INTO webhooks (id, owner, url, events, sealed, active, created_ms,"
                       " failures, last_error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                       r.id, r.owner, r.url, r.events, Blob{r.sealed}, r.active, r.created_ms,
                       r.failures, r.last_error));
  return {};
}

Result<WebhookRecord> find_webhook(Database& database, std::string_view id) {
  return must_exist(TRY(first_row(database, read_webhook,
                                  "SELECT id, owner, url, events, sealed, active, created_ms,"
                                  " failures, last_error FROM webhooks WHERE id = ?1",
                                  id)),
                    named(id));
}

Result<std::vector<WebhookRecord>> list_all_webhooks(Database& database) {
  return all_rows(database, read_webhook,
                  "SELECT id, owner, url, events, sealed, active, created_ms, failures, last_error"
                  " FROM webhooks ORDER BY created_ms, id");
}

Result<std::vector<WebhookRecord>> list_webhooks(Database& database, std::string_view owner) {
  return all_rows(database, read_webhook,
                  "SELECT id, owner, url, events, sealed, active, created_ms, failures, last_error"
                  " FROM webhooks WHERE owner = ?1 ORDER BY created_ms, id",
                  owner);
}

Result<void> update_webhook(Database& database, const WebhookRecord& r) {
  return change_one(database, named(r.id),
                    "UPDATE webhooks SET url = ?2, events = ?3, sealed = ?4, active = ?5,"
                    " failures = ?6, last_error = ?7 WHERE id = ?1",
                    r.id, r.url, r.events, Blob{r.sealed}, r.active, r.failures, r.last_error);
}

Result<bool> remove_webhook(Database& database, std::string_view id) {
  return TRY(database.execute("DELETE FROM webhooks WHERE id = ?1", id)) > 0;
}

}  // namespace asr
