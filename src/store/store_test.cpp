#include "store/store.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <fstream>
#include <future>
#include <thread>

#include "store/event_records.hpp"
#include "store/rows.hpp"
#include "store/session_records.hpp"
#include "store/store_testing.hpp"

namespace asr {
namespace {

using test::must;
namespace asio = boost::asio;
namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> open() { return must(Store::open(folder_.path())); }
  static Errc refusal(const fs::path& path) {
    auto opened = Store::open(path);
    EXPECT_FALSE(opened);
    EXPECT_FALSE(opened.error().hint.empty()) << opened.error().what;
    return opened ? Errc::internal : opened.error().code;
  }
  static unsigned mode_of(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777U;
  }

  test::ScratchFolder folder_;
};

auto add_event(const std::string& type) {
  return [type](Database& db) { return append_event(db, {.type = type}); };
}

Result<std::int64_t> count_events(Database& db) {
  return one_number(db, 0, "SELECT count(*) FROM events");
}

TEST_F(StoreTest, WhatWasWrittenIsThereAfterwards) {
  test::Loop loop;
  {
    auto store = open();
    EXPECT_EQ(must(loop.wait(store->write(add_event("a")))), 1);
    EXPECT_EQ(must(loop.wait(store->write(add_event("b"), Durability::machine))), 2);
    EXPECT_EQ(must(store->run(add_event("c"))), 3);
    EXPECT_EQ(must(loop.wait(store->read(count_events))), 3);
  }
  auto store = open();
  EXPECT_EQ(must(store->run(count_events)), 3);
  EXPECT_TRUE(store->notices().empty());
}

TEST_F(StoreTest, ACoroutineGoesOnWhereItCameFrom) {
  asio::thread_pool threads(2);
  auto store = open();
  auto check = [](Store* s, asio::any_io_executor here) -> asio::awaitable<bool> {
    auto work = add_event("a");
    (void)co_await s->write(std::move(work));
    bool same = co_await asio::this_coro::executor == here;
    co_return same&& here.target<asio::thread_pool::executor_type>()->running_in_this_thread();
  };
  auto same = asio::co_spawn(threads, check(store.get(), threads.get_executor()), asio::use_future);
  EXPECT_TRUE(same.get());
}

TEST_F(StoreTest, WorkMayBeMovedOnlyAndGiveAnything) {
  test::Loop loop;
  auto store = open();
  auto work = [box = std::make_unique<int>(7)](Database&) -> Result<std::unique_ptr<int>> {
    return std::make_unique<int>(*box + 1);
  };
  EXPECT_EQ(*must(loop.wait(store->write(std::move(work)))), 8);
  auto nothing = [](Database&) -> Result<void> { return {}; };
  EXPECT_TRUE(loop.wait(store->read(nothing)));
}

TEST_F(StoreTest, WorkThatFailsLeavesNothing) {
  test::Loop loop;
  auto store = open();
  auto half = [](Database& db) -> Result<void> {
    TRY(append_event(db, {.type = "half"}));
    return fail(Errc::denied, "changed my mind");
  };
  EXPECT_EQ(loop.wait(store->write(half)).error().code, Errc::denied);
  EXPECT_EQ(store->run(half).error().code, Errc::denied);
  auto throws = [](Database& db) -> Result<void> {
    TRY(append_event(db, {.type = "half"}));
    throw std::runtime_error("a bug");
  };
  EXPECT_THROW((void)loop.wait(store->write(throws)), std::runtime_error);
  EXPECT_THROW((void)store->run(throws), std::runtime_error);
  EXPECT_EQ(must(store->run(count_events)), 0);
}

TEST_F(StoreTest, AReadMustNotWrite) {
  test::Loop loop;
  auto store = open();
  EXPECT_EQ(loop.wait(store->read(add_event("a"))).error().code, Errc::internal);
  EXPECT_EQ(must(loop.wait(store->read(count_events))), 0);
}

TEST_F(StoreTest, WorkMustNotEndItsTransaction) {
  auto store = open();
  auto commits = [](Database& db) -> Result<void> { return db.script("COMMIT"); };
  EXPECT_EQ(store->run(commits).error().code, Errc::internal);
  EXPECT_EQ(must(store->run(add_event("a"))), 1);
}

TEST_F(StoreTest, WaitingForTheStoreOnItsOwnThreadIsAnError) {
  auto store = open();
  auto nested = [&](Database&) { return store->run(count_events); };
  EXPECT_EQ(store->run(nested).error().code, Errc::internal);
}

// Every third fails after it wrote; every one tells what it saw of the others.
TEST_F(StoreTest, ManyWritersShareCommitsAndOnlyTheFailingFail) {
  test::Loop loop;
  auto store = open();
  auto writer = [](int i) {
    return [i](Database& db) -> Result<std::int64_t> {
      std::int64_t id = TRY(append_event(db, {.type = "w" + std::to_string(i)}));
      if (i % 3 == 0) return fail(Errc::denied, "on purpose");
      if (i % 7 == 0) TRY(db.execute("INSERT INTO meta VALUES (NULL, NULL)"));
      return id;
    };
  };
  std::vector<std::future<Result<std::int64_t>>> results;
  for (int i = 0; i < 200; ++i) {
    auto durability = i % 50 == 0 ? Durability::machine : Durability::process;
    results.push_back(loop.spawn(store->write(writer(i), durability)));
  }
  std::vector<std::string> expected;
  for (int i = 0; i < 200; ++i) {
    auto result = results[static_cast<std::size_t>(i)].get();
    bool fails = i % 3 == 0 || i % 7 == 0;
    ASSERT_EQ(result.has_value(), !fails) << i;
    if (fails) {
      EXPECT_EQ(result.error().code, i % 3 == 0 ? Errc::denied : Errc::conflict) << i;
    } else {
      expected.push_back("w" + std::to_string(i));
    }
  }
  std::vector<std::string> found;
  for (const auto& event :
       must(store->run([](Database& db) { return list_events(db, {.limit = 1000}); })))
    found.push_back(event.type);
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

// Holds the store's thread while work is queued behind it.
class Gate {
 public:
  explicit Gate(Store& store) {
    auto hold = [this](Database&) -> Result<void> {
      closed_.set_value();
      opened_.get_future().wait();
      return {};
    };
    held_ = std::async(std::launch::async, [&store, hold] { return store.run(hold); });
    closed_.get_future().wait();
  }
  void open() {
    opened_.set_value();
    must(held_.get());
  }

 private:
  std::promise<void> closed_;
  std::promise<void> opened_;
  std::future<Result<void>> held_;
};

TEST_F(StoreTest, WritesThatWaitTogetherAreOneTransaction) {
  asio::io_context context;
  auto store = open();
  Gate gate(*store);
  int in_this_transaction = 0;
  auto count = [&](Database& db) -> Result<void> {
    TRY(append_event(db, {.type = "x"}));
    // Each sees those before it, which nobody else can see yet.
    if (TRY(count_events(db)) == ++in_this_transaction) return {};
    return fail(Errc::internal, "not in one transaction");
  };
  std::vector<std::future<Result<void>>> writes;
  auto spawn = [&] {
    writes.push_back(asio::co_spawn(context, store->write(count), asio::use_future));
  };
  for (int i = 0; i < 50; ++i) spawn();
  auto read = asio::co_spawn(context, store->read(count_events), asio::use_future);
  for (int i = 0; i < 50; ++i) spawn();
  context.poll();  // Now all of them are queued.
  gate.open();
  context.run();
  for (auto& write : writes) must(write.get());
  EXPECT_EQ(must(read.get()), 100) << "a read sees all of a transaction";
}

TEST_F(StoreTest, AStoreAtRestLetsTheCallerWork) {
  asio::io_context context;
  auto store = open();
  auto where = [](Database& db) -> Result<std::thread::id> {
    TRY(append_event(db, {.type = "x"}));
    return std::this_thread::get_id();
  };
  auto ask = [&](Durability durability) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    auto done = asio::co_spawn(context, store->write(where, durability), asio::use_future);
    context.restart();
    context.run();
    return must(done.get());
  };
  EXPECT_EQ(ask(Durability::process), std::this_thread::get_id());
  EXPECT_NE(ask(Durability::machine), std::this_thread::get_id()) << "it waits for the disk";
  EXPECT_EQ(must(store->run(count_events)), 2);
}

// Longer than it takes to be done without a second write.
TEST_F(StoreTest, WhatIsWrittenSoonIsWritten) {
  test::Loop loop;
  auto store = open();
  EXPECT_EQ(must(loop.wait(store->write_soon(add_event("a")))), 1);
  EXPECT_EQ(must(loop.wait(store->write_soon(add_event("b")))), 2);
}

TEST_F(StoreTest, WhatIsWrittenSoonKeepsItsPlace) {
  asio::io_context context;
  auto store = open();
  auto first = asio::co_spawn(context, store->write_soon(add_event("a")), asio::use_future);
  auto second = asio::co_spawn(context, store->write_soon(add_event("b")), asio::use_future);
  auto third = asio::co_spawn(context, store->write(add_event("c")), asio::use_future);
  context.run();
  EXPECT_EQ(must(first.get()), 1);
  EXPECT_EQ(must(second.get()), 2);
  EXPECT_EQ(must(third.get()), 3);
}

TEST_F(StoreTest, WhatIsWrittenSoonIsNotForgottenAtTheEnd) {
  asio::io_context context;
  {
    auto store = open();
    (void)asio::co_spawn(context, store->write_soon(add_event("a")), asio::use_future);
    context.poll();
  }
  context.run();
  EXPECT_EQ(must(open()->run(count_events)), 1);
}

TEST_F(StoreTest, AFailedCommitFailsAllOfThem) {
  asio::io_context context;
  auto store = open();
  // A deferred constraint is looked at by COMMIT only.
  must(store->run([](Database& db) {
    return db.script(
        "CREATE TABLE child (of TEXT REFERENCES sessions (id)"
        " DEFERRABLE INITIALLY DEFERRED)");
  }));
  Gate gate(*store);
  auto orphan = [](Database& db) { return db.execute("INSERT INTO child VALUES ('nobody')"); };
  auto good = asio::co_spawn(context, store->write(add_event("a")), asio::use_future);
  auto bad = asio::co_spawn(context, store->write(orphan), asio::use_future);
  context.poll();
  gate.open();
  context.run();
  EXPECT_EQ(bad.get().error().code, Errc::conflict);
  EXPECT_EQ(good.get().error().code, Errc::conflict);
  EXPECT_EQ(must(store->run(count_events)), 0);
  EXPECT_TRUE(store->run(add_event("b"))) << "the next one is not affected";
}

TEST_F(StoreTest, TheEndWaitsForWhatIsQueued) {
  asio::io_context context;
  std::vector<std::future<Result<std::int64_t>>> results;
  auto store = open();
  {
    Gate gate(*store);
    for (int i = 0; i < 600; ++i)
      results.push_back(asio::co_spawn(context, store->write(add_event("x")), asio::use_future));
    context.poll();
    gate.open();
  }
  store.reset();
  context.run();
  for (auto& result : results) EXPECT_TRUE(result.get());
  EXPECT_EQ(must(open()->run(count_events)), 600);
}

TEST_F(StoreTest, TheLogDoesNotGrowForEver) {
  auto store = open();
  std::string large(3000, 'x');
  std::uintmax_t longest = 0;
  for (int i = 0; i < 3000; ++i) {
    must(store->run([&](Database& db) -> Result<void> {
      TRY(append_event(db, {.type = "x", .data = large}));
      TRY(trim_events(db, 10));
      return {};
    }));
    if (i % 100 == 0) longest = std::max(longest, fs::file_size(folder_ / "state.db-wal"));
  }
  EXPECT_LT(longest, 8U << 20);
  EXPECT_GT(longest, 1U << 20) << "otherwise this proved nothing";
}

TEST_F(StoreTest, AnIdleStoreMovesItsLogIntoTheFile) {
  auto store = open();
  must(store->run(add_event("CANARY-idle")));
  auto in_file = [&] {
    std::ifstream in(folder_ / "state.db", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    return bytes.find("CANARY-idle") != std::string::npos;
  };
  EXPECT_FALSE(in_file());
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!in_file() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(in_file());
}

TEST_F(StoreTest, TheFolderMayBeBehindALinkAndDeep) {
  fs::path deep = folder_ / "a/b/c";
  must(must(Store::open(deep))->run(add_event("x")));
  fs::create_directory_symlink(deep, folder_ / "link");
  EXPECT_EQ(must(must(Store::open(folder_ / "link"))->run(count_events)), 1);
}

TEST_F(StoreTest, AFileIsNoFolder) {
  std::ofstream(folder_.path()) << "x";
  EXPECT_FALSE(Store::open(folder_.path()));
  EXPECT_FALSE(Store::open(folder_ / "below"));
}

TEST_F(StoreTest, EverythingIsPrivateWhateverTheUmask) {
  for (mode_t umask : {0000U, 0277U}) {
    mode_t before = ::umask(umask);
    test::ScratchFolder folder;
    auto store = Store::open(folder.path());
    ::umask(before);
    ASSERT_TRUE(store) << store.error().what;
    must((*store)->run(add_event("x")));
    EXPECT_EQ(mode_of(folder.path()), 0700U);
    for (const char* name : {"state.db", "state.db-wal", "state.db-shm", "secret.key"})
      EXPECT_EQ(mode_of(folder / name), 0600U) << name;
    EXPECT_EQ(mode_of(folder / "lock") & 077U, 0U);
  }
}

TEST_F(StoreTest, ASecondServerIsRefused) {
  auto store = open();
  auto second = Store::open(folder_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::conflict);
  EXPECT_NE(second.error().what.find("another server"), std::string::npos);
  store.reset();
  EXPECT_TRUE(Store::open(folder_.path()));
}

TEST_F(StoreTest, AFolderThatOthersMayEnterIsRefused) {
  open();
  for (mode_t mode : {0701U, 0710U, 0740U, 0755U, 0777U}) {
    fs::permissions(folder_.path(), static_cast<fs::perms>(mode));
    EXPECT_EQ(refusal(folder_.path()), Errc::denied) << std::oct << mode;
  }
  fs::permissions(folder_.path(), fs::perms(0700));
  EXPECT_TRUE(Store::open(folder_.path()));
}

TEST_F(StoreTest, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  open();
  ASSERT_EQ(::chown(folder_.path().c_str(), 12345, 12345), 0);
  EXPECT_EQ(refusal(folder_.path()), Errc::denied);
}

TEST_F(StoreTest, AKeyThatOthersMayReadIsRefused) {
  open();
  fs::permissions(folder_ / "secret.key", fs::perms(0640));
  EXPECT_EQ(refusal(folder_.path()), Errc::denied);
}

TEST_F(StoreTest, AKeyThatIsLostChangedOrAnothersIsRefused) {
  open();
  fs::path key = folder_ / "secret.key";
  fs::path aside = folder_ / "aside";
  fs::copy_file(key, aside);
  fs::remove(key);
  EXPECT_EQ(refusal(folder_.path()), Errc::internal);
  EXPECT_FALSE(fs::exists(key)) << "a new one would hide the loss";
  for (std::size_t size : {0U, 31U, 32U, 33U}) {
    std::ofstream(key) << std::string(size, 'k');
    fs::permissions(key, fs::perms(0600));
    EXPECT_EQ(refusal(folder_.path()), Errc::internal) << size;
  }
  fs::rename(aside, key);
  EXPECT_TRUE(Store::open(folder_.path()));
}

TEST_F(StoreTest, SealedValuesSurviveARestart) {
  std::string sealed = open()->secrets().seal("secret", "row");
  EXPECT_EQ(must(open()->secrets().open(sealed, "row")), "secret");
}

TEST_F(StoreTest, SealedValuesAreNowhereInTheClear) {
  const std::string canary = "CANARY-7f3a9";
  auto store = open();
  SessionRecord r;
  r.id = "s1";
  r.labels = "{}";
  r.sealed = store->secrets().seal(canary, r.id);
  must(store->run([&](Database& db) { return insert_session(db, r); }, Durability::machine));
  auto occurs = [&](const std::string& text) {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes(std::istreambuf_iterator<char>(in), {});
      files += bytes.find(text) != std::string::npos ? 1 : 0;
    }
    return files;
  };
  EXPECT_EQ(occurs(canary), 0);
  EXPECT_GT(occurs(r.sealed), 0) << "otherwise this proved nothing";
  store.reset();
  EXPECT_EQ(occurs(canary), 0);
}

TEST_F(StoreTest, ADatabaseOfANewerProgramIsRefused) {
  open();
  must(must(Database::open(folder_ / "state.db"))->script("PRAGMA user_version = 1000"));
  auto refused = Store::open(folder_.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::conflict);
  EXPECT_NE(refused.error().what.find("newer version"), std::string::npos);
}

}  // namespace
}  // namespace asr
