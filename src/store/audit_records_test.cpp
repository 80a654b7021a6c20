#include "store/audit_records.hpp"

#include <sqlite3.h>

#include "store/meta_records.hpp"
#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class Audit : public test::RecordTest {
 protected:
  Audit() {
    for (int i = 1; i <= 10; ++i) must(append_audit(*db_, secrets_, entry(i)));
  }
  static AuditEntry entry(int i) {
    return {1000 + i, "alice", "session.create", "s" + std::to_string(i), R"({"a":1})", "trace"};
  }
  AuditVerdict verify() { return must(verify_audit(*db_, secrets_)); }

  // What somebody does who has the file, but not the key.
  void tamper(const std::string& sql) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ / "state.db").c_str(), &raw), SQLITE_OK);
    std::string all = "DROP TRIGGER audit_is_not_changed; DROP TRIGGER audit_is_not_cut;" + sql;
    EXPECT_EQ(sqlite3_exec(raw, all.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(raw);
    sqlite3_close(raw);
  }

  SecretBox secrets_{random_secret_key()};
};

TEST_F(Audit, ComesBackAsItWent) {
  auto records = must(list_audit(*db_, 8, 100));
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].seq, 9);
  EXPECT_EQ(records[0].entry, entry(9));
  EXPECT_EQ(records[0].hash.size(), 32U);
  EXPECT_EQ(must(list_audit(*db_, 0, 3)).size(), 3U);
  EXPECT_EQ(list_audit(*db_, 0, 0).error().code, Errc::invalid);
  AuditVerdict verdict = verify();
  EXPECT_TRUE(verdict.ok) << verdict.why;
  EXPECT_EQ(verdict.count, 10);
}

TEST_F(Audit, AnEmptyLogIsFine) {
  auto empty = must(Database::open(folder_ / "empty.db"));
  must(migrate(*empty));
  AuditVerdict verdict = must(verify_audit(*empty, secrets_));
  EXPECT_TRUE(verdict.ok);
  EXPECT_EQ(verdict.count, 0);
}

TEST_F(Audit, IsOnlyAddedTo) {
  for (const char* sql :
       {"UPDATE audit SET actor = 'bob'", "DELETE FROM audit", "DELETE FROM audit WHERE seq = 10",
        "INSERT OR REPLACE INTO audit SELECT seq, at_ms, 'bob', action, target, detail, trace_id,"
        " hash FROM audit WHERE seq = 5"})
    EXPECT_EQ(db_->execute(sql).error().code, Errc::conflict) << sql;
  EXPECT_TRUE(verify().ok);
}

TEST_F(Audit, EveryChangedFieldIsFound) {
  for (const char* set : {"at_ms = 1", "actor = 'mallory'", "action = ''", "target = target || 'x'",
                          "detail = '{}'", "trace_id = 'x'", "hash = zeroblob(32)",
                          // The same bytes, divided differently.
                          "actor = 'alic', action = 'esession.create'"}) {
    auto before = must(list_audit(*db_, 4, 1)).front();
    tamper(std::string("UPDATE audit SET ") + set + " WHERE seq = 5");
    AuditVerdict verdict = verify();
    EXPECT_FALSE(verdict.ok) << set;
    EXPECT_EQ(verdict.first_bad_seq, 5) << set;
    must(db_->execute(
        "UPDATE audit SET at_ms = ?1, actor = ?2, action = ?3, target = ?4,"
        " detail = ?5, trace_id = ?6, hash = ?7 WHERE seq = 5",
        before.entry.at_ms, before.entry.actor, before.entry.action, before.entry.target,
        before.entry.detail, before.entry.trace_id, Blob{before.hash}));
    ASSERT_TRUE(verify().ok);
    must(db_->script(
        "CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT 1; END;"
        "CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit BEGIN SELECT 1; END;"));
  }
}

TEST_F(Audit, ARemovedRowIsFound) {
  tamper("DELETE FROM audit WHERE seq = 4");
  AuditVerdict verdict = verify();
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.first_bad_seq, 4);
  EXPECT_NE(verdict.why.find("missing"), std::string::npos);
}

TEST_F(Audit, ARemovedRowIsFoundWhenTheOthersAreRenumbered) {
  tamper("DELETE FROM audit WHERE seq = 4; UPDATE audit SET seq = seq - 1 WHERE seq > 4;");
  EXPECT_FALSE(verify().ok);
  EXPECT_EQ(verify().first_bad_seq, 4);
}

TEST_F(Audit, ALostBeginningIsFound) {
  tamper("DELETE FROM audit WHERE seq < 3");
  EXPECT_FALSE(verify().ok);
  EXPECT_EQ(verify().first_bad_seq, 1);
}

TEST_F(Audit, ACutTailIsFoundAlsoWhenTheLogGoesOn) {
  tamper("DELETE FROM audit WHERE seq > 8");
  EXPECT_FALSE(verify().ok);
  EXPECT_EQ(verify().first_bad_seq, 9);
  must(append_audit(*db_, secrets_, entry(11)));
  EXPECT_FALSE(verify().ok);
  EXPECT_EQ(verify().first_bad_seq, 9);
}

TEST_F(Audit, NothingLeftIsFound) {
  tamper("DELETE FROM audit");
  EXPECT_FALSE(verify().ok);
  EXPECT_EQ(verify().first_bad_seq, 1);
}

// Hashes alone stop nobody: without the key one can compute them. The head cannot be sealed.
TEST_F(Audit, ANewlyComputedChainIsFound) {
  SecretBox theirs(random_secret_key());
  tamper("DELETE FROM audit; DELETE FROM meta WHERE name = 'audit.head'");
  AuditEntry lie = entry(1);
  lie.actor = "nobody";
  for (int i = 0; i < 10; ++i) must(append_audit(*db_, theirs, lie));
  EXPECT_FALSE(verify().ok);
  EXPECT_FALSE(append_audit(*db_, secrets_, entry(11))) << "must not bless what it cannot check";
}

TEST_F(Audit, ATamperedHeadIsFound) {
  std::string head = *must(find_meta(*db_, "audit.head"));
  must(set_meta(*db_, "audit.head", "nonsense"));
  EXPECT_FALSE(verify().ok);
  must(set_meta(*db_, "audit.head", head));
  EXPECT_TRUE(verify().ok);
  tamper("DELETE FROM meta WHERE name = 'audit.head'");
  EXPECT_FALSE(verify().ok);
  EXPECT_FALSE(append_audit(*db_, secrets_, entry(11)));
}

}  // namespace
}  // namespace asr
