#include "store/audit_records.hpp"

#include <cstring>

#include "store/meta_records.hpp"
#include "store/paging.hpp"
#include "store/rows.hpp"

namespace asr {

namespace {

constexpr std::string_view kHead = "audit.head";

struct Head {
  std::int64_t seq = 0;
  std::string hash = std::string(32, '\0');  // What the first entry follows.
};

void append_number(std::string& text, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(value >> shift));
}

// With its length in front, or "a" and "bc" would have the hash of "ab" and "c".
void append_field(std::string& text, std::string_view field) {
  append_number(text, field.size());
  text += field;
}

std::string chained_hash(const Head& previous, const AuditRecord& record) {
  std::string text = previous.hash;
  append_number(text, static_cast<std::uint64_t>(record.seq));
  append_number(text, static_cast<std::uint64_t>(record.entry.at_ms));
  for (const std::string* field : {&record.entry.actor, &record.entry.action, &record.entry.target,
                                   &record.entry.detail, &record.entry.trace_id})
    append_field(text, *field);
  return sha256(text);
}

std::string sealed_head(const SecretBox& secrets, const Head& head) {
  std::string text;
  append_number(text, static_cast<std::uint64_t>(head.seq));
  return secrets.seal(text + head.hash, kHead);
}

Result<Head> open_head(const SecretBox& secrets, std::string_view sealed) {
  std::string text = TRY(secrets.open(sealed, kHead));
  if (text.size() != 8 + 32) return fail(Errc::internal, "the head has the wrong length");
  Head head{0, text.substr(8)};
  for (int i = 7; i >= 0; --i)
    head.seq = head.seq << 8 | static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
  return head;
}

void read_audit(const Statement& row, AuditRecord& r) {
  row.read(r.seq, r.entry.at_ms, r.entry.actor, r.entry.action, r.entry.target, r.entry.detail,
           r.entry.trace_id, r.hash);
}

AuditVerdict bad(std::int64_t count, std::int64_t seq, std::string why) {
  return {.count = count, .ok = false, .first_bad_seq = seq, .why = std::move(why)};
}

// What the end of the chain must be.
Result<AuditVerdict> compare_with_head(Database& database, const SecretBox& secrets,
                                       const Head& last) {
  auto sealed = TRY(find_meta(database, kHead));
  if (!sealed) {
    if (last.seq == 0) return AuditVerdict();
    return bad(last.seq, last.seq, "the sealed head of the log is missing");
  }
  auto head = open_head(secrets, *sealed);
  if (!head) return bad(last.seq, last.seq, "the sealed head of the log was changed");
  if (head->seq > last.seq)
    return bad(last.seq, last.seq + 1,
               "the log ends at entry " + std::to_string(last.seq) + ", but had " +
                   std::to_string(head->seq));
  if (head->seq < last.seq)
    return bad(last.seq, head->seq + 1, "entries were added by something else than this program");
  if (!constant_time_equal(head->hash, last.hash))
    return bad(last.seq, last.seq, "the last entry is not the one that was written");
  return AuditVerdict{.count = last.seq};
}

}  // namespace

Result<AuditRecord> append_audit(Database& database, const SecretBox& secrets,
                                 const AuditEntry& entry) {
  Head head;
  if (auto sealed = TRY(find_meta(database, kHead))) head = TRY(open_head(secrets, *sealed));
  AuditRecord record{head.seq + 1, entry, {}};
  record.hash = chained_hash(head, record);
  TRY(
      database.execute("INSERT INTO audit (seq, at_ms, actor, action, target, detail, trace_id,"
                       " hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                       record.seq, entry.at_ms, entry.actor, entry.action, entry.target,
                       entry.detail, entry.trace_id, Blob{record.hash}));
  TRY(set_meta(database, kHead, sealed_head(secrets, {record.seq, record.hash})));
  return record;
}

Result<std::vector<AuditRecord>> list_audit(Database& database, std::int64_t after,
                                            std::int64_t limit) {
  return all_rows(database, read_audit,
                  "SELECT seq, at_ms, actor, action, target, detail, trace_id, hash FROM audit"
                  " WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                  after, TRY(checked_limit(limit)));
}

Result<AuditVerdict> verify_audit(Database& database, const SecretBox& secrets) {
  Statement row = TRY(database.query(
      "SELECT seq, at_ms, actor, action, target, detail, trace_id, hash FROM audit ORDER BY seq"));
  Head last;
  AuditRecord record;
  while (TRY(row.next())) {
    read_audit(row, record);
    std::int64_t expected = last.seq + 1;
    if (record.seq != expected)
      return bad(last.seq, expected, "entry " + std::to_string(expected) + " is missing");
    if (!constant_time_equal(chained_hash(last, record), record.hash))
      return bad(last.seq, expected, "entry " + std::to_string(expected) + " was changed");
    last = {record.seq, record.hash};
  }
  return compare_with_head(database, secrets, last);
}

}  // namespace asr
