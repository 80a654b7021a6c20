// What is written down beside a change: who made it, and the event that tells of it.
#pragma once

#include <string>
#include <utility>

#include "base/clock.hpp"
#include "net/json.hpp"
#include "session/caller.hpp"
#include "store/audit_records.hpp"
#include "store/event_records.hpp"
#include "store/store.hpp"

namespace asr {

inline AuditEntry audit_of(const Caller& caller, std::string action, std::string target,
                           const json::object& detail = {}) {
  AuditEntry entry;
  entry.at_ms = now_ms();
  entry.actor = caller.id;
  entry.action = std::move(action);
  entry.target = std::move(target);
  entry.detail = to_text(detail);
  entry.trace_id = caller.trace_id;
  return entry;
}

// The change, its event and its entry in the audit: all of it or nothing. Gives the event's id.
template <class Work>
auto with_trail(Work change, EventRecord event, AuditEntry entry, const SecretBox& secrets) {
  return [change = std::move(change), event = std::move(event), entry = std::move(entry),
          &secrets](Database& database) -> Result<std::int64_t> {
    TRY(change(database));
    TRY(append_audit(database, secrets, entry));
    return append_event(database, event);
  };
}

}  // namespace asr
