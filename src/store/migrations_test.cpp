#include "store/migrations.hpp"

#include <array>

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

constexpr std::array<std::string_view, 3> kSteps{
    "CREATE TABLE a (n INTEGER); INSERT INTO a VALUES (7);",
    "ALTER TABLE a ADD COLUMN m INTEGER NOT NULL DEFAULT 3;",
    "CREATE TABLE b AS SELECT n + m AS sum FROM a",
};

class Migrations : public testing::Test {
 protected:
  Migrations() {
    std::filesystem::create_directories(folder_.path());
    reopen();
  }
  void reopen() {
    db_.reset();
    db_ = must(Database::open(folder_ / "test.db"));
  }
  std::int64_t number(std::string_view sql) {
    Statement row = must(db_->query(sql));
    std::int64_t n = -1;
    if (must(row.next())) row.read(n);
    return n;
  }

  test::ScratchFolder folder_;
  std::unique_ptr<Database> db_;
};

TEST_F(Migrations, AnOldDatabaseKeepsWhatItHas) {
  std::span<const std::string_view> steps(kSteps);
  must(migrate(*db_, steps.first(1)));
  reopen();
  must(migrate(*db_, steps));
  EXPECT_EQ(must(schema_version(*db_)), 3);
  EXPECT_EQ(number("SELECT sum FROM b"), 10);
  reopen();
  must(migrate(*db_, steps));
  EXPECT_EQ(number("SELECT count(*) FROM a"), 1) << "a step is done once";
}

TEST_F(Migrations, ANewerDatabaseIsRefusedAndUntouched) {
  must(migrate(*db_, kSteps));
  auto refused = migrate(*db_, std::span<const std::string_view>(kSteps).first(2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  EXPECT_NE(refused.error().what.find("newer version"), std::string::npos);
  EXPECT_FALSE(refused.error().hint.empty());
  EXPECT_EQ(must(schema_version(*db_)), 3);
}

TEST_F(Migrations, AStepThatFailsLeavesTheOneBefore) {
  constexpr std::array<std::string_view, 2> kBroken{
      kSteps[0], "ALTER TABLE a ADD COLUMN m INTEGER; INSERT INTO nowhere VALUES (1);"};
  EXPECT_FALSE(migrate(*db_, kBroken));
  EXPECT_FALSE(db_->in_transaction());
  EXPECT_EQ(must(schema_version(*db_)), 1);
  EXPECT_FALSE(db_->query("SELECT m FROM a"));
  must(migrate(*db_, kSteps));
  EXPECT_EQ(number("SELECT sum FROM b"), 10);
}

TEST_F(Migrations, ADatabaseOfAnotherProgramIsRefused) {
  must(db_->script("CREATE TABLE theirs (n INTEGER)"));
  EXPECT_EQ(migrate(*db_, kSteps).error().code, Errc::conflict);
  must(db_->script("PRAGMA user_version = 1"));
  EXPECT_EQ(migrate(*db_, kSteps).error().code, Errc::conflict);
}

TEST_F(Migrations, SessionsOfTheFirstShapeKeepNoArtifacts) {
  must(migrate(*db_, schema_migrations().first(1)));
  must(db_->script(
      "INSERT INTO sessions (id, owner, provider, environment, state, persistent,"
      " created_ms, expires_ms, idle_ms, active_ms, end_reason, url, labels, sandbox,"
      " isolation, sealed, spec) VALUES ('s', 'o', 'p', 'e', 'ready', 0, 1, 2, 3, 4, '',"
      " 'u', '{}', 'b', '[]', x'00', '{}')"));
  reopen();
  must(migrate(*db_));
  EXPECT_EQ(number("SELECT keep_artifacts + artifact_bytes FROM sessions WHERE id = 's'"), 0);
  EXPECT_EQ(must(schema_version(*db_)), static_cast<std::int64_t>(schema_migrations().size()));
}

TEST_F(Migrations, TheShapeOfTheStoreIsSound) {
  must(migrate(*db_));
  Statement row = must(db_->query("PRAGMA integrity_check"));
  std::string found;
  ASSERT_TRUE(must(row.next()));
  row.read(found);
  EXPECT_EQ(found, "ok");
}

}  // namespace
}  // namespace asr
