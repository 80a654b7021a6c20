#include "store/sqlite.hpp"

#include <sys/stat.h>

#include <fstream>

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class Sqlite : public testing::Test {
 protected:
  Sqlite() {
    std::filesystem::create_directories(folder_.path());
    db_ = must(Database::open(folder_ / "test.db"));
    must(db_->script("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT, blob BLOB, n INTEGER)"));
  }
  std::int64_t count() {
    Statement row = must(db_->query("SELECT count(*) FROM t"));
    std::int64_t n = 0;
    EXPECT_TRUE(must(row.next()));
    row.read(n);
    return n;
  }

  test::ScratchFolder folder_;
  std::unique_ptr<Database> db_;
};

TEST_F(Sqlite, ValuesComeBackAsTheyWent) {
  std::string zeros("a\0b\0", 4);
  std::optional<std::int64_t> nothing;
  must(db_->execute("INSERT INTO t VALUES (1, ?1, ?2, ?3)", zeros, Blob{zeros}, INT64_MIN));
  must(db_->execute("INSERT INTO t VALUES (2, ?1, ?2, ?3)", std::string_view(), Blob{}, nothing));
  std::byte bytes[] = {std::byte{0}, std::byte{255}};
  must(db_->execute("INSERT INTO t VALUES (3, ?1, ?2, ?3)", "text",
                    std::span<const std::byte>(bytes), true));

  Statement row = must(db_->query("SELECT text, blob, n FROM t ORDER BY id"));
  std::string text;
  std::optional<std::string> blob;
  std::optional<std::int64_t> n;
  ASSERT_TRUE(must(row.next()));
  row.read(text, blob, n);
  EXPECT_EQ(text, zeros);
  EXPECT_EQ(blob, zeros);
  EXPECT_EQ(n, INT64_MIN);
  ASSERT_TRUE(must(row.next()));
  row.read(text, blob, n);
  EXPECT_EQ(text, "");
  EXPECT_EQ(blob, "") << "empty is not NULL";
  EXPECT_EQ(n, std::nullopt);
  ASSERT_TRUE(must(row.next()));
  row.read(text, blob, n);
  EXPECT_EQ(text, "text");
  EXPECT_EQ(blob, std::string("\0\xff", 2));
  EXPECT_EQ(n, 1);
  EXPECT_FALSE(must(row.next()));
}

TEST_F(Sqlite, BoundTextIsNeverPartOfTheStatement) {
  for (const char* hostile : test::kHostile) {
    must(db_->execute("INSERT INTO t (text) VALUES (?1)", hostile));
    Statement row = must(db_->query("SELECT text FROM t WHERE text = ?1", hostile));
    ASSERT_TRUE(must(row.next()));
    std::string text;
    row.read(text);
    EXPECT_EQ(text, hostile);
    EXPECT_FALSE(must(row.next()));
  }
  EXPECT_EQ(count(), static_cast<std::int64_t>(std::size(test::kHostile)));
}

TEST_F(Sqlite, OneTextCanBeInUseTwice) {
  for (int i = 0; i < 3; ++i) must(db_->execute("INSERT INTO t (n) VALUES (?1)", i));
  int pairs = 0;
  Statement outer = must(db_->query("SELECT n FROM t ORDER BY n"));
  while (must(outer.next())) {
    Statement inner = must(db_->query("SELECT n FROM t ORDER BY n"));
    while (must(inner.next())) ++pairs;
  }
  EXPECT_EQ(pairs, 9);
}

TEST_F(Sqlite, ManyTextsDoNotPileUp) {
  Statement kept = must(db_->query("SELECT 17"));
  for (int i = 0; i < 2000; ++i) must(db_->execute("SELECT " + std::to_string(i)));
  ASSERT_TRUE(must(kept.next()));
  std::int64_t n = 0;
  kept.read(n);
  EXPECT_EQ(n, 17);
}

TEST_F(Sqlite, ChangedRowsAreCounted) {
  EXPECT_EQ(must(db_->execute("INSERT INTO t (n) VALUES (1), (2), (3)")), 3);
  EXPECT_EQ(must(db_->execute("UPDATE t SET n = 5 WHERE n > 1")), 2);
  EXPECT_EQ(must(db_->execute("DELETE FROM t WHERE n = 77")), 0);
  EXPECT_EQ(must(db_->execute("SELECT 1")), 0);
}

TEST_F(Sqlite, MistakesAreValues) {
  EXPECT_EQ(db_->execute("SELEKT").error().code, Errc::internal);
  EXPECT_EQ(db_->execute("SELECT ?1", 1, 2).error().code, Errc::internal);
  must(db_->execute("INSERT INTO t (id) VALUES (1)"));
  EXPECT_EQ(db_->execute("INSERT INTO t (id) VALUES (1)").error().code, Errc::conflict);
  EXPECT_EQ(db_->execute("SELECT ?1", std::string(65 << 20, 'x')).error().code, Errc::invalid);
  EXPECT_EQ(count(), 1);
}

TEST_F(Sqlite, ALockHeldByAnotherIsATimeout) {
  auto other = must(Database::open(folder_ / "test.db"));
  must(other->script("BEGIN IMMEDIATE"));
  must(db_->script("PRAGMA busy_timeout = 10"));
  EXPECT_EQ(db_->execute("INSERT INTO t (n) VALUES (1)").error().code, Errc::timeout);
  must(other->script("ROLLBACK"));
  EXPECT_TRUE(db_->execute("INSERT INTO t (n) VALUES (1)"));
}

TEST_F(Sqlite, WhatIsNoDatabaseIsNamed) {
  std::ofstream(folder_ / "text.db") << std::string(8192, 'x');
  auto opened = Database::open(folder_ / "text.db");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::internal);
  EXPECT_NE(opened.error().what.find("text.db"), std::string::npos);
  EXPECT_FALSE(opened.error().hint.empty());
}

TEST_F(Sqlite, WhatCannotBeOpenedIsTheSystemsFault) {
  EXPECT_EQ(Database::open(folder_ / "missing/test.db").error().code, Errc::os);
  std::filesystem::create_symlink(folder_ / "test.db", folder_ / "link.db");
  EXPECT_EQ(Database::open(folder_ / "link.db").error().code, Errc::os);
}

TEST_F(Sqlite, ForeignKeysHold) {
  must(db_->script("CREATE TABLE child (of INTEGER REFERENCES t (id))"));
  EXPECT_EQ(db_->execute("INSERT INTO child VALUES (5)").error().code, Errc::conflict);
}

}  // namespace
}  // namespace asr
