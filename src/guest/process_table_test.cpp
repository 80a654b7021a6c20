#include "guest/process_table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "os/file.hpp"

namespace asr {
namespace {

using Pids = std::vector<std::int32_t>;

std::string stat_line(const std::string& name) {
  return "42 (" + name +
         ") S 7 42 41 34816 42 4194304 100 0 0 0 150 50 20 10 20 0 1 0 12345 1000000 25 "
         "18446744073709551615";
}

TEST(ParseStat, ReadsTheFields) {
  auto stat = parse_stat(stat_line("sh"));
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->pid, 42);
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->session, 41);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->cpu.count(), 200 * 1000 / ::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(stat->children_cpu.count(), 30 * 1000 / ::sysconf(_SC_CLK_TCK));
  EXPECT_EQ(stat->rss_bytes, 25U * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

// A program chooses its name; it must not choose its parent by it.
TEST(ParseStat, NamesMayHoldAnything) {
  for (const char* name :
       {"a b", ")", "(", ") R 1 1 1", "((()))", "x) S 1 1 1 1 1", "", "\n", ") ) )"}) {
    auto stat = parse_stat(stat_line(name));
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->parent, 7) << name;
    EXPECT_EQ(stat->session, 41) << name;
  }
}

TEST(ParseStat, WhatIsNoStatLineIsRefused) {
  std::string whole = stat_line("sh");
  for (const char* line : {"", ")", ") ", "1 (x) ", "1 (x)", "1 (x) S", "1 (x) S 1 2 3", "garbage"})
    EXPECT_FALSE(parse_stat(line)) << line;
  std::size_t fields_end = whole.rfind(" 25");
  for (std::size_t size = 0; size <= fields_end; ++size)
    EXPECT_FALSE(parse_stat(whole.substr(0, size))) << size;
}

TEST(ParseStat, NumbersThatOverflowDoNoHarm) {
  std::string line = "99999999999999999999 (x) S";
  for (int i = 0; i < 24; ++i)
    line += i % 2 == 0 ? " 9223372036854775807" : " -9223372036854775808";
  EXPECT_TRUE(parse_stat(line));
}

TEST(ParseStat, ReadsThisVeryProcess) {
  auto line = read_small_file(AT_FDCWD, "/proc/self/stat");
  ASSERT_TRUE(line);
  auto stat = parse_stat(*line);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->pid, ::getpid());
  EXPECT_EQ(stat->parent, ::getppid());
}

ProcessStat process(std::int32_t pid, std::int32_t parent, std::int32_t session) {
  ProcessStat stat;
  stat.pid = pid;
  stat.parent = parent;
  stat.session = session;
  return stat;
}

Pids pids_of(const std::vector<ProcessStat>& stats) {
  Pids pids;
  for (const ProcessStat& stat : stats) pids.push_back(stat.pid);
  std::sort(pids.begin(), pids.end());
  return pids;
}

TEST(TreeOf, HoldsDescendantsInAnyOrder) {
  std::vector<ProcessStat> all{process(5, 4, 2), process(4, 3, 2), process(3, 2, 2),
                               process(2, 1, 2), process(9, 1, 9)};
  EXPECT_EQ(pids_of(tree_of(2, all)), (Pids{2, 3, 4, 5}));
  EXPECT_EQ(pids_of(tree_of(4, all)), (Pids{4, 5}));
}

// A daemon leaves its parent for pid 1, but takes its session along; or leaves its session, but not
// its parent.
TEST(TreeOf, HoldsWhoLeftTheParentOrTheSession) {
  std::vector<ProcessStat> all{process(2, 1, 2), process(3, 1, 2), process(4, 2, 4),
                               process(5, 4, 4), process(6, 1, 6)};
  EXPECT_EQ(pids_of(tree_of(2, all)), (Pids{2, 3, 4, 5}));
}

TEST(TreeOf, TheRootNeedNotLiveAndCirclesEnd) {
  std::vector<ProcessStat> all{process(3, 2, 2), process(4, 5, 9), process(5, 4, 9),
                               process(6, 6, 6)};
  EXPECT_EQ(pids_of(tree_of(2, all)), Pids{3});
  EXPECT_EQ(pids_of(tree_of(4, all)), (Pids{4, 5}));
  EXPECT_EQ(pids_of(tree_of(6, all)), Pids{6});
  EXPECT_TRUE(tree_of(7, all).empty());
}

}  // namespace
}  // namespace asr
