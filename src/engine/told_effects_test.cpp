#include "engine/told_effects.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace asr {
namespace {

using Counts = std::map<std::string, std::uint64_t>;

wire::Measured all_known() {
  wire::Measured told;
  told.files_known = told.files_complete = told.refused_calls_known = true;
  told.processes = told.written_bytes = told.attempted = told.refused = told.cpu_us = 0;
  return told;
}

TEST(ToldEffects, CallsHaveNames) {
  wire::Measured told = all_known();
  told.refused_calls = {{SYS_mount, 2}, {SYS_socket, 1}, {600, 3}, {SYS_keyctl, 0}};
  Effects effects = effects_of(told, nullptr);
  EXPECT_EQ(effects.refused_calls, (Counts{{"mount", 2}, {"socket", 1}, {"syscall_600", 3}}));
  EXPECT_FALSE(effects.unknown.contains("refused_calls"));
}

TEST(ToldEffects, NoMoreCallsThanThereAre) {
  wire::Measured told = all_known();
  for (std::uint32_t number = 0; number < 100'000; ++number)
    told.refused_calls.push_back({number, ~std::uint64_t{0}});
  EXPECT_EQ(effects_of(told, nullptr).refused_calls->size(), 512U);
  told.refused_calls = {{SYS_mount, 2}, {SYS_mount, 5}};
  EXPECT_EQ(effects_of(told, nullptr).refused_calls, (Counts{{"mount", 2}}));
}

TEST(ToldEffects, WhatIsMissingHasAReason) {
  Effects nothing = effects_of(wire::Measured(), nullptr);
  EXPECT_FALSE(nothing.refused_calls);
  for (const char* name : {"files", "processes_started", "peak_memory_bytes", "bytes_written",
                           "connections", "refused_calls"})
    EXPECT_NE(nothing.unknown[name], "") << name;
  for (const auto& [name, why] : unknown_effects("why").unknown) EXPECT_EQ(why, "why") << name;
  EXPECT_TRUE(unknown_effects("why").unknown.contains("refused_calls"));
}

TEST(ToldEffects, TooManyFilesAreAReason) {
  wire::Measured told;
  told.files_too_many = true;
  Effects effects = effects_of(told, nullptr);
  EXPECT_FALSE(effects.files);
  EXPECT_EQ(effects.unknown["files"], "too many files to compare");
}

TEST(ToldEffects, FilesThatMakeNoSenseAreNotTold) {
  wire::Measured told = all_known();
  told.files.emplace_back().path = "/a/../b";
  Effects effects = effects_of(told, nullptr);
  EXPECT_FALSE(effects.files);
  EXPECT_NE(effects.unknown["files"], "");
}

}  // namespace
}  // namespace asr
