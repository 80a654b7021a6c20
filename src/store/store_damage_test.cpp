// A damaged file is refused or reported. What must never happen is that rows are gone and nobody
// is told.
#include <sys/wait.h>

#include <fstream>
#include <random>

#include "store/event_records.hpp"
#include "store/key_records.hpp"
#include "store/rows.hpp"
#include "store/session_records.hpp"
#include "store/store_testing.hpp"
#include "store/wal_check.hpp"

namespace asr {
namespace {

using test::must;
namespace fs = std::filesystem;

constexpr int kSessions = 60;
constexpr int kKeys = 20;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

Result<void> fill(Database& db) {
  for (int i = 0; i < kSessions; ++i) {
    SessionRecord r;
    r.id = "session-" + std::to_string(i);
    r.owner = "alice";
    r.labels = R"({"team":"a"})";
    r.spec = std::string(300, 's');
    r.created_ms = i;
    TRY(insert_session(db, r));
  }
  for (int i = 0; i < kKeys; ++i) {
    std::string id = "key-" + std::to_string(i);
    TRY(insert_key(db, {.id = id, .role = "user", .hash = sha256(id)}));
  }
  return {};
}

// Whether every row is still found by every way that leads to it. What is in the rows may have
// changed: a flipped bit in a text is a text.
Result<bool> all_found(Database& db) {
  std::vector<SessionRecord> sessions = TRY(list_sessions(db, {.limit = 1000})).sessions;
  if (sessions.size() != kSessions) return false;
  for (const auto& session : sessions)
    if (!find_session(db, session.id)) return false;
  std::vector<KeyRecord> keys = TRY(list_keys(db));
  if (keys.size() != kKeys) return false;
  for (const auto& key : keys)
    if (!find_key_by_hash(db, key.hash)) return false;
  return true;
}

class Damage : public testing::Test {
 protected:
  Damage() {
    must(must(Store::open(folder_.path()))->run(fill));
    sound_ = read_file(file_);
  }
  // Opens with these bytes in the file; whether that was refused, reported, or did no harm.
  testing::AssertionResult not_silent(std::string_view bytes) {
    fs::remove(folder_ / "state.db-wal");
    fs::remove(folder_ / "state.db-shm");
    write_file(file_, bytes);
    auto store = Store::open(folder_.path());
    if (!store) {
      ++refused_;
      if (store.error().hint.empty() && store.error().code == Errc::internal)
        return testing::AssertionFailure() << "no hint: " << store.error().what;
      return testing::AssertionSuccess();
    }
    if (!(*store)->notices().empty()) return testing::AssertionSuccess();
    auto found = (*store)->run(all_found);
    if (!found) return testing::AssertionSuccess() << found.error().what;
    if (*found) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "rows are missing and nobody was told";
  }

  test::ScratchFolder folder_;
  fs::path file_ = folder_ / "state.db";
  std::string sound_;
  int refused_ = 0;
};

TEST_F(Damage, ASoundFileIsAccepted) {
  EXPECT_TRUE(not_silent(sound_));
  EXPECT_EQ(refused_, 0);
}

TEST_F(Damage, FlippedBytesAreNotSilent) {
  std::mt19937 random(4711);
  for (int round = 0; round < 500; ++round) {
    std::string bytes = sound_;
    // Half of them in the first pages, where the shape of everything is.
    std::size_t range = round % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 8192);
    std::size_t at = random() % range;
    bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1U << random() % 8));
    ASSERT_TRUE(not_silent(bytes)) << "byte " << at << " of " << bytes.size();
  }
  EXPECT_GT(refused_, 20) << "otherwise this proved nothing";
}

TEST_F(Damage, ZeroedPagesAreNotSilent) {
  for (std::size_t at = 0; at < sound_.size(); at += 4096) {
    std::string bytes = sound_;
    bytes.replace(at, 4096, 4096, '\0');
    ASSERT_TRUE(not_silent(bytes)) << "page " << at / 4096;
  }
  EXPECT_GT(refused_, 10);
}

TEST_F(Damage, ACutFileIsNotSilent) {
  for (std::size_t size = 0; size < sound_.size(); size += 1000)
    ASSERT_TRUE(not_silent(std::string_view(sound_).substr(0, size))) << size;
}

TEST_F(Damage, AnEmptyOrMissingFileIsNotANewBeginning) {
  EXPECT_TRUE(not_silent(""));
  EXPECT_EQ(refused_, 1);
  fs::remove(file_);
  auto store = Store::open(folder_.path());
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::internal);
  EXPECT_NE(store.error().hint.find("backup"), std::string::npos);
}

// The log as it is after kill -9: full of what is not yet in the file.
class DamagedLog : public testing::Test {
 protected:
  // More than the making of the tables has left in the log, which is written over.
  static constexpr int kEvents = 60;
  DamagedLog() {
    pid_t pid = ::fork();
    if (pid == 0) {
      auto store = Store::open(folder_.path());
      for (int i = 0; i < kEvents; ++i)
        if (!store || !(*store)->run([](Database& db) { return append_event(db, {}); })) ::_exit(1);
      ::_exit(0);  // Without destructors: the log stays.
    }
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    log_ = read_file(path_);
  }
  struct Outcome {
    std::int64_t events;
    std::size_t notices;
  };
  // Each time from the same database.
  Outcome open_with(std::string_view log) {
    test::ScratchFolder copy;
    fs::create_directory(copy.path());
    fs::permissions(copy.path(), fs::perms(0700));
    for (const char* name : {"state.db", "secret.key"}) fs::copy_file(folder_ / name, copy / name);
    write_file(copy / "state.db-wal", log);
    auto store = must(Store::open(copy.path()));
    auto count = [](Database& db) { return one_number(db, 0, "SELECT count(*) FROM events"); };
    if (!store->notices().empty()) {
      int copies = 0;
      for (const auto& entry : fs::directory_iterator(copy.path()))
        if (entry.path().filename().native().starts_with("state.db-wal.damaged"))
          copies += read_file(entry.path()) == log ? 1 : 0;
      EXPECT_EQ(copies, 1);
    }
    return {must(store->run(count)), store->notices().size()};
  }

  test::ScratchFolder folder_;
  fs::path path_ = folder_ / "state.db-wal";
  std::string log_;
};

TEST_F(DamagedLog, AWholeLogIsTakenWithoutAWord) {
  EXPECT_GT(must(check_wal(path_)).readable, 20U);
  EXPECT_EQ(must(check_wal(path_)).lost, 0U);
  Outcome whole = open_with(log_);
  EXPECT_EQ(whole.events, kEvents);
  EXPECT_EQ(whole.notices, 0U);
}

TEST_F(DamagedLog, DamageBeforeTheEndIsReported) {
  std::size_t last_frame = log_.size() - 4096 - 24;
  std::mt19937 random(4711);
  for (int round = 0; round < 64; ++round) {
    std::string log = log_;
    std::size_t at = round < 32 ? static_cast<std::size_t>(round) : random() % last_frame;
    log[at] = static_cast<char>(log[at] ^ 0x10);
    Outcome outcome = open_with(log);
    EXPECT_TRUE(outcome.events == kEvents || outcome.notices == 1)
        << "byte " << at << ": " << outcome.events << " events";
  }
}

// A write that was cut off by the end of the process was never acknowledged.
TEST_F(DamagedLog, ATornEndIsNotDamage) {
  for (std::size_t cut : {1U, 24U, 4000U, 4120U}) {
    Outcome outcome = open_with(std::string_view(log_).substr(0, log_.size() - cut));
    EXPECT_EQ(outcome.notices, 0U);
    EXPECT_EQ(outcome.events, kEvents - 1);
  }
}

TEST_F(DamagedLog, NoLogIsNoDamage) {
  EXPECT_EQ(must(check_wal(folder_ / "nothing")).lost, 0U);
  EXPECT_EQ(open_with("").notices, 0U);
  EXPECT_EQ(open_with("short").notices, 0U);
}

}  // namespace
}  // namespace asr
