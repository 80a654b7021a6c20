// Who did what, in a log that is only added to. Each entry's hash covers the one before it; the
// newest is kept a second time, sealed. Whoever can write the file but has not the key cannot
// change, remove or add an entry unnoticed. (Putting back a whole older copy of the file is not
// noticed.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "store/secret_box.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct AuditEntry {
  std::int64_t at_ms = 0;
  std::string actor;
  std::string action;
  std::string target;
  std::string detail;  // JSON
  std::string trace_id;
  friend bool operator==(const AuditEntry&, const AuditEntry&) = default;
};

struct AuditRecord {
  std::int64_t seq = 0;  // 1, 2, 3 … without gaps
  AuditEntry entry;
  std::string hash;  // 32 bytes
  friend bool operator==(const AuditRecord&, const AuditRecord&) = default;
};

struct AuditVerdict {
  std::int64_t count = 0;  // entries looked at
  bool ok = true;
  std::int64_t first_bad_seq = 0;
  std::string why;
};

// Goes on from the sealed head, not from the last row: an entry added to a log that was cut leaves
// the cut to be seen.
Result<AuditRecord> append_audit(Database& database, const SecretBox& secrets,
                                 const AuditEntry& entry);
Result<std::vector<AuditRecord>> list_audit(Database& database, std::int64_t after,
                                            std::int64_t limit);
// An error only when the log could not be read.
Result<AuditVerdict> verify_audit(Database& database, const SecretBox& secrets);

}  // namespace asr
