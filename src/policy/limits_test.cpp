#include "policy/limits.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace asr {
namespace {

Result<void> checked(const std::function<void(Limits&)>& change) {
  Limits limits;
  change(limits);
  return check(limits);
}

TEST(Limits, TheDefaultsCanWork) { EXPECT_TRUE(check(Limits{})); }

TEST(Limits, WhatCannotWorkIsRefusedWithAHint) {
  const std::function<void(Limits&)> kWrong[] = {
      [](Limits& l) { l.memory_bytes = 0; },
      [](Limits& l) { l.memory_bytes = (16ULL << 20) - 1; },
      [](Limits& l) { l.disk_bytes = 0; },
      [](Limits& l) { l.disk_bytes = l.memory_bytes / 2 + 1; },
      [](Limits& l) { l.disk_bytes = ~0ULL; },
      [](Limits& l) { l.pids = 0; },
      [](Limits& l) { l.pids = 30001; },
      [](Limits& l) { l.pids = ~0U; },
      [](Limits& l) { l.milli_cpus = 9; },
      [](Limits& l) { l.inodes = 255; },
      [](Limits& l) { l.open_files = 15; },
  };
  int index = 0;
  for (const auto& wrong : kWrong) {
    auto result = checked(wrong);
    ASSERT_FALSE(result) << index;
    EXPECT_EQ(result.error().code, Errc::invalid) << index;
    EXPECT_FALSE(result.error().hint.empty()) << index;
    ++index;
  }
  EXPECT_FALSE(checked([](Limits& l) { l.wall_time = std::chrono::milliseconds(-1); }));
  EXPECT_FALSE(checked([](Limits& l) { l.cpu_time = std::chrono::milliseconds(-1); }));
}

TEST(Limits, TheEdgesThemselvesAreAllowed) {
  EXPECT_TRUE(checked([](Limits& l) { l.memory_bytes = 16ULL << 20, l.disk_bytes = 8ULL << 20; }));
  EXPECT_TRUE(checked([](Limits& l) { l.disk_bytes = l.memory_bytes / 2; }));
  EXPECT_TRUE(checked([](Limits& l) { l.pids = 1; }));
  EXPECT_TRUE(checked([](Limits& l) { l.milli_cpus = 0; }));
  EXPECT_TRUE(checked([](Limits& l) { l.output_bytes = 0; }));
}

// A cgroup reads a number of microseconds, a tmpfs a number of inodes: what they cannot hold must
// not come so far.
TEST(Limits, TheLargestValuesDoNotOverflow) {
  EXPECT_TRUE(checked([](Limits& l) { l.memory_bytes = ~0ULL; }));
  EXPECT_TRUE(checked([](Limits& l) { l.milli_cpus = ~0U; }));
}

}  // namespace
}  // namespace asr
