#include "session/verdict.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

namespace asr {
namespace {

ExitStatus ended(EndReason reason, int exit_code = 0, std::uint32_t oom_kills = 0) {
  ExitStatus status;
  status.reason = reason;
  status.exit_code = exit_code;
  status.oom_kills = oom_kills;
  return status;
}

ExitStatus not_started(int why) {
  ExitStatus status = ended(EndReason::not_started, 127);
  status.start_errno = why;
  return status;
}

TEST(Verdict, ComesFromHowAProgramEnded) {
  EXPECT_EQ(verdict_of(ended(EndReason::exited)), Verdict::accepted);
  EXPECT_EQ(verdict_of(ended(EndReason::exited, 1)), Verdict::runtime_error);
  EXPECT_EQ(verdict_of(ended(EndReason::signaled, 139)), Verdict::runtime_error);
  EXPECT_EQ(verdict_of(ended(EndReason::out_of_memory, 137)), Verdict::memory_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::wall_time, 137)), Verdict::time_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::cpu_time, 137)), Verdict::time_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::output_limit, 137)), Verdict::output_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::policy, 159)), Verdict::refused);
}

TEST(Verdict, MemoryThatAChildLackedCounts) {
  EXPECT_EQ(verdict_of(ended(EndReason::exited, 1, 2)), Verdict::memory_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::signaled, 134, 1)), Verdict::memory_limit);
  EXPECT_EQ(verdict_of(ended(EndReason::exited, 0, 1)), Verdict::accepted);
}

TEST(Verdict, WhatIsOursIsNeverTheirs) {
  EXPECT_EQ(verdict_of(ended(EndReason::sandbox_gone, 137)), Verdict::platform);
  EXPECT_EQ(verdict_of(ended(EndReason::lost, 255)), Verdict::platform);
  EXPECT_EQ(verdict_of(not_started(EAGAIN)), Verdict::platform);
  EXPECT_EQ(verdict_of(not_started(ENOMEM)), Verdict::platform);
  EXPECT_EQ(verdict_of(ended(EndReason::sandbox_gone, 137, 1)), Verdict::memory_limit);
}

TEST(Verdict, WhatCannotBeRunIsRefused) {
  EXPECT_EQ(verdict_of(not_started(ENOENT)), Verdict::refused);
  EXPECT_EQ(verdict_of(not_started(EACCES)), Verdict::refused);
  EXPECT_NE(reason_of(not_started(ENOENT)).find("No such file"), std::string::npos);
}

TEST(Verdict, EachHasAName) {
  EXPECT_EQ(to_string(Verdict::accepted), "accepted");
  EXPECT_EQ(to_string(Verdict::runtime_error), "runtime_error");
  EXPECT_EQ(to_string(Verdict::platform), "platform");
  EXPECT_EQ(reason_of(ended(EndReason::exited)), "");
  EXPECT_EQ(reason_of(ended(EndReason::exited, 3)), "it exited with 3");
  ExitStatus crashed = ended(EndReason::signaled, 139);
  crashed.signal = SIGSEGV;
  EXPECT_NE(reason_of(crashed).find("Segmentation"), std::string::npos);
}

bool same_lines(std::string_view expected, std::string_view written) {
  return is_same_output(expected, written, Compare::lines);
}

TEST(Output, BlanksAtTheEndsOfLinesDoNotMatter) {
  EXPECT_TRUE(same_lines("1 2\n3", "1 2  \n3\t\r\n\n\n"));
  EXPECT_TRUE(same_lines("a\r\nb\r\n", "a\nb"));
  EXPECT_TRUE(same_lines("", "\n \n"));
  EXPECT_TRUE(same_lines("", ""));
  EXPECT_TRUE(same_lines("a\n\nb", "a\n \nb\n"));
}

TEST(Output, EverythingElseDoes) {
  EXPECT_FALSE(same_lines("a", " a"));
  EXPECT_FALSE(same_lines("a b", "a  b"));
  EXPECT_FALSE(same_lines("a\nb", "a\n\nb"));
  EXPECT_FALSE(same_lines("a", "a\nb"));
  EXPECT_FALSE(same_lines("a\nb", "a"));
  EXPECT_FALSE(same_lines("a", ""));
  EXPECT_FALSE(same_lines("\na", "a"));
  EXPECT_FALSE(same_lines(std::string_view("a\0", 2), "a"));
}

TEST(Output, BytesAreBytes) {
  EXPECT_TRUE(is_same_output("a\n", "a\n", Compare::bytes));
  EXPECT_FALSE(is_same_output("a\n", "a", Compare::bytes));
  EXPECT_FALSE(is_same_output("a", "a ", Compare::bytes));
}

TEST(Output, IsCutBetweenCharacters) {
  EXPECT_EQ(beginning_of("abc", 5), "abc");
  EXPECT_EQ(beginning_of("abc", 2), "ab");
  EXPECT_EQ(beginning_of("a\xC3\xA4z", 2), "a");
  EXPECT_EQ(beginning_of("a\xC3\xA4z", 3), "a\xC3\xA4");
  EXPECT_EQ(beginning_of("\xF0\x9F\x98\x80", 3), "");
  EXPECT_EQ(beginning_of("\x80\x80\x80\x80\x80\x80", 5).size(), 5U);
  EXPECT_EQ(beginning_of("abc", 0), "");
}

}  // namespace
}  // namespace asr
