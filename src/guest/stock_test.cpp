#include "guest/stock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

constexpr std::string_view kTable =
    "Ip: Forwarding DefaultTTL OutNoRoutes\nIp: 1 64 7\n"
    "Icmp: InMsgs\nIcmp: 3\nIcmpMsg: \nIcmpMsg: \n"
    "Tcp: RtoAlgorithm ActiveOpens AttemptFails\nTcp: 1 22 -1\n";

TEST(Counters, TablesOfTheKernel) {
  EXPECT_EQ(counter_in(kTable, "Ip", "OutNoRoutes"), 7U);
  EXPECT_EQ(counter_in(kTable, "Ip", "Forwarding"), 1U);
  EXPECT_EQ(counter_in(kTable, "Tcp", "ActiveOpens"), 22U);
  EXPECT_EQ(counter_in(kTable, "Tcp", "AttemptFails"), std::nullopt) << "not a count";
  EXPECT_EQ(counter_in(kTable, "Tcp", "Opens"), std::nullopt);
  EXPECT_EQ(counter_in(kTable, "Udp", "InDatagrams"), std::nullopt);
  EXPECT_EQ(counter_in(kTable, "IcmpMsg", "x"), std::nullopt);
  EXPECT_EQ(counter_in("", "Ip", "x"), std::nullopt);
  EXPECT_EQ(counter_in("Ip: a b", "Ip", "b"), std::nullopt);
  EXPECT_EQ(counter_in("Ip: a b\nIp: 1", "Ip", "b"), std::nullopt);
}

TEST(Counters, LinesOfTheKernel) {
  constexpr std::string_view kLines =
      "Ip6InReceives   \t12\nIp6OutNoRoutes  \t3\nrchar: 9\nwchar: 5\n";
  EXPECT_EQ(value_in(kLines, "Ip6OutNoRoutes"), 3U);
  EXPECT_EQ(value_in(kLines, "wchar:"), 5U);
  EXPECT_EQ(value_in(kLines, "char:"), std::nullopt);
  EXPECT_EQ(value_in(kLines, "Ip6"), std::nullopt);
  EXPECT_EQ(value_in("", "a"), std::nullopt);
  EXPECT_EQ(value_in("a", "a"), std::nullopt);
}

TEST(Stock, CountsProcessesAndWhatTheyUse) {
  Scratch nothing;
  RefusalListener nobody;
  Stocktaker stocktaker(nothing, nobody);
  Stock before = stocktaker.take(::getpid());
  ASSERT_TRUE(before.processes);
  ASSERT_TRUE(before.used);
  ASSERT_TRUE(before.connections);
  for (int i = 0; i < 3; ++i) {
    int child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  }
  int own = ::fork();
  if (own == 0) ::_exit(0);
  ::waitpid(own, nullptr, 0);
  stocktaker.started_own();
  int null = ::open("/dev/null", O_WRONLY);
  std::string data(10000, 'x');
  EXPECT_EQ(::write(null, data.data(), data.size()), 10000);
  ::close(null);
  wire::Measured told = stocktaker.since(before, Stocktaker::use_of(::getpid()));
  // Others of this machine start processes, too.
  EXPECT_GE(told.processes, 3);
  EXPECT_GE(told.written_bytes, 10000);
  EXPECT_LT(told.written_bytes, 20000);
  EXPECT_GT(told.cpu_us, 0);
  EXPECT_GE(told.attempted, 0);
  EXPECT_FALSE(told.files_known) << "there is nothing to look at";
}

TEST(Stock, WhatOursStartedBeforeTheFirstCountIsInNone) {
  Scratch nothing;
  RefusalListener nobody;
  Stocktaker stocktaker(nothing, nobody);
  stocktaker.started_own();
  stocktaker.started_own();
  Stock before = stocktaker.take();
  EXPECT_EQ(before.processes, 0U);
  for (int i = 0; i < 3; ++i) {
    int child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  }
  EXPECT_GE(stocktaker.since(before, std::nullopt).processes, 3);
}

TEST(Stock, SaysWhatItDoesNotKnow) {
  Scratch nothing;
  RefusalListener nobody;
  Stocktaker stocktaker(nothing, nobody);
  wire::Measured told = stocktaker.since(Stock(), std::nullopt);
  EXPECT_EQ(told.processes, -1);
  EXPECT_EQ(told.written_bytes, -1);
  EXPECT_EQ(told.attempted, -1);
  EXPECT_EQ(told.cpu_us, -1);
  EXPECT_FALSE(told.refused_calls_known);
  EXPECT_FALSE(Stocktaker::use_of(0x7fffffff));
}

class StockOfFiles : public testing::Test {
 protected:
  StockOfFiles() : dir_(fs::temp_directory_path() / ("asr-stock-" + random_name(10))) {
    fs::create_directories(dir_ / "upper");
    scratch_.one_id = true;
    Scratch::Tree tree;
    tree.base = ::open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    tree.folder = "upper";
    tree.in_memory = false;
    tree.overlay = true;
    scratch_.trees.push_back(std::move(tree));
  }
  ~StockOfFiles() override {
    ::close(scratch_.trees[0].base);
    EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native()));
  }

  void put(const std::string& name) {
    fs::create_directories((dir_ / "upper" / name).parent_path());
    std::ofstream(dir_ / "upper" / name) << "x";
  }
  void put_many(const std::string& prefix, int count) {
    for (int i = 0; i < count; ++i) put(prefix + std::to_string(i));
  }
  // Folders in folders, with names as long as there can be.
  void put_chain(const std::string& name, int depth) {
    UniqueFd here(::open((dir_ / "upper").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::string longest = name + std::string(255 - name.size(), 'x');
    for (int i = 0; i < depth; ++i) {
      ASSERT_EQ(::mkdirat(here.get(), longest.c_str(), 0755), 0);
      here = UniqueFd(::openat(here.get(), longest.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      ASSERT_TRUE(here);
    }
  }
  wire::Measured told_since(const Stock& before) { return taker_.since(before, std::nullopt); }
  static std::vector<std::string> paths_of(const wire::Measured& told, wire::ChangeKind kind) {
    std::vector<std::string> paths;
    for (const wire::FileChange& file : told.files)
      if (file.kind == kind) paths.push_back(file.path);
    return paths;
  }

  static constexpr int kMany = 2500;  // more than are looked at

  fs::path dir_;
  Scratch scratch_;
  RefusalListener nobody_;
  Stocktaker taker_{scratch_, nobody_};
};

TEST_F(StockOfFiles, TellsWhatHappened) {
  put_many("kept", 10);
  put("old");
  Stock before = taker_.take();
  put("new");
  fs::remove(dir_ / "upper/old");
  wire::Measured told = told_since(before);
  EXPECT_TRUE(told.files_known && told.files_complete);
  EXPECT_THAT(paths_of(told, wire::ChangeKind::added), ElementsAre("/new"));
  EXPECT_THAT(paths_of(told, wire::ChangeKind::removed), ElementsAre("/old"));
  EXPECT_EQ(told.files.size(), 2U);
}

TEST_F(StockOfFiles, TooManyBeforeAreNotCompared) {
  put_many("old", kMany);
  Stock before = taker_.take();
  put_many("new", 10);
  for (int i = 0; i < 10; ++i) fs::remove(dir_ / ("upper/old" + std::to_string(i)));
  wire::Measured told = told_since(before);
  EXPECT_FALSE(told.files_known);
  EXPECT_TRUE(told.files_too_many);
  EXPECT_TRUE(told.files.empty());
  // Also once there are fewer.
  fs::remove_all(dir_ / "upper");
  fs::create_directory(dir_ / "upper");
  EXPECT_FALSE(told_since(before).files_known);
}

TEST_F(StockOfFiles, OfTooManyAfterwardsOnlyWhatIsCertainIsTold) {
  put_many("old/", 500);
  Stock before = taker_.take();
  put_many("new/", kMany);
  wire::Measured told = told_since(before);
  EXPECT_TRUE(told.files_known);
  EXPECT_FALSE(told.files_complete);
  EXPECT_FALSE(told.files.empty());
  for (const wire::FileChange& file : told.files) {
    EXPECT_EQ(file.kind, wire::ChangeKind::added) << file.path;
    EXPECT_TRUE(file.path.starts_with("/new")) << file.path;
  }
}

TEST_F(StockOfFiles, PathsAreHeldUpToALimit) {
  put("short");
  put_chain("a", 100);
  Stock before = taker_.take();
  EXPECT_TRUE(before.files_known);
  EXPECT_FALSE(before.files_complete);
  EXPECT_FALSE(before.files_cut) << "what is left out is left out afterwards, too";
  for (const wire::FileChange& file : before.files) EXPECT_LE(file.path.size(), 4096U);
  put("new");
  wire::Measured told = told_since(before);
  EXPECT_TRUE(told.files_known);
  EXPECT_FALSE(told.files_complete);
  EXPECT_THAT(paths_of(told, wire::ChangeKind::added), ElementsAre("/new"));
  EXPECT_EQ(told.files.size(), 1U);

  for (int i = 0; i < 60; ++i) put_chain("b" + std::to_string(i), 15);
  Stock much = taker_.take();
  std::size_t bytes = 0;
  for (const wire::FileChange& file : much.files) bytes += file.path.size();
  EXPECT_LE(bytes, 1U << 20);
  EXPECT_TRUE(much.files_cut);
}

}  // namespace
}  // namespace asr
