#include "store/share_records.hpp"

#include "store/rows.hpp"

namespace asr {

namespace {

void read_share(const Statement& row, ShareRecord& r) { row.read(r.session, r.key_id, r.access); }

}  // namespace

Result<void> set_share(Database& database, const ShareRecord& r) {
  TRY(
      database.execute("INSERT INTO session_shares (session, key_id, access) VALUES (?1, ?2, ?3)"
                       " ON CONFLICT (session, key_id) DO UPDATE SET access = excluded.access",
                       r.session, r.key_id, r.access));
  return {};
}

Result<bool> remove_share(Database& database, std::string_view session, std::string_view key_id) {
  return TRY(database.execute("DELETE FROM session_shares WHERE session = ?1 AND key_id = ?2",
                              session, key_id)) > 0;
}

Result<std::vector<ShareRecord>> shares_of(Database& database, std::string_view session) {
  return all_rows(database, read_share,
                  "SELECT session, key_id, access FROM session_shares WHERE session = ?1"
                  " ORDER BY key_id",
                  session);
}

Result<std::optional<std::string>> access_of(Database& database, std::string_view session,
                                             std::string_view key_id) {
  ReadRow<std::string> read = [](const Statement& row, std::string& access) { row.read(access); };
  return first_row(database, read,
                   "SELECT access FROM session_shares WHERE session = ?1 AND key_id = ?2", session,
                   key_id);
}

}  // namespace asr
