// No space is left: writes fail and say so, reads go on, and nothing has to be restarted
// afterwards.
#include <sys/mount.h>

#include <fstream>

#include "base/scope_exit.hpp"
#include "store/event_records.hpp"
#include "store/rows.hpp"
#include "store/store_testing.hpp"

namespace asr {
namespace {

using test::must;
namespace fs = std::filesystem;

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_.path());
    if (::mount("full-disk-test", folder_.path().c_str(), "tmpfs", MS_NOSUID | MS_NODEV,
                "size=1m,mode=0700") != 0)
      GTEST_SKIP() << "may not mount a file system";
    mounted_ = true;
  }
  ~FullDisk() override {
    if (mounted_) {
      EXPECT_EQ(::umount2(folder_.path().c_str(), MNT_DETACH), 0);
    }
  }
  static auto add(std::size_t size) {
    return [size](Database& db) {
      return append_event(db, {.type = "x", .data = std::string(size, 'x')});
    };
  }
  void fill_up() const {
    std::ofstream out(ballast_, std::ios::binary);
    std::string block(4096, 'b');
    while (out.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }

  test::ScratchFolder folder_;
  fs::path ballast_ = folder_ / "ballast";
  bool mounted_ = false;
};

Result<std::int64_t> count_events(Database& db) {
  return one_number(db, 0, "SELECT count(*) FROM events");
}

TEST_F(FullDisk, WritesFailReadsGoOnAndSpaceHeals) {
  test::Loop loop;
  auto store = must(Store::open(folder_ / "state"));
  for (int i = 0; i < 10; ++i) must(store->run(add(100)));
  fill_up();

  std::int64_t written = 10;
  int refused = 0;
  // Space that the log has already can still be written.
  for (int i = 0; i < 100; ++i) {
    auto result = loop.wait(store->write(add(20'000)));
    if (result) {
      ++written;
      continue;
    }
    ++refused;
    ASSERT_EQ(result.error().code, Errc::exhausted) << result.error().what;
    EXPECT_NE(result.error().what.find("disk is full"), std::string::npos);
    EXPECT_FALSE(result.error().hint.empty());
    ASSERT_EQ(must(loop.wait(store->read(count_events))), written) << "nothing of it stayed";
  }
  EXPECT_GT(refused, 50);

  fs::remove(ballast_);
  must(loop.wait(store->write(add(20'000), Durability::machine)));
  EXPECT_EQ(must(loop.wait(store->read(count_events))), written + 1);
  store.reset();
  store = must(Store::open(folder_ / "state"));
  EXPECT_EQ(must(store->run(count_events)), written + 1);
}

TEST_F(FullDisk, OneLargeWriteDoesNotTakeTheOthersWithItForEver) {
  test::Loop loop;
  auto store = must(Store::open(folder_ / "state"));
  EXPECT_EQ(store->run(add(2 << 20)).error().code, Errc::exhausted);
  must(store->run(add(100)));
  EXPECT_EQ(must(loop.wait(store->read(count_events))), 1);
}

TEST_F(FullDisk, ANewStoreSaysWhatIsWrong) {
  fill_up();
  auto store = Store::open(folder_ / "state");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Errc::exhausted) << store.error().what;
  fs::remove(ballast_);
  EXPECT_TRUE(Store::open(folder_ / "state"));
}

}  // namespace
}  // namespace asr
