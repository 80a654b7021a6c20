#include "cli/tally.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace asr {
namespace {

using namespace std::chrono_literals;

TEST(Tally, AveragesOverTasksNotOverSamples) {
  Tally tally(5, 2);
  for (const char* verdict : {"accepted", "wrong_answer", "wrong_answer", "wrong_answer"})
    tally.add("a", verdict);
  tally.add("b", "accepted");
  EXPECT_DOUBLE_EQ(tally.pass_rate(), 0.4);
  EXPECT_DOUBLE_EQ(tally.pass_at_1(), (0.25 + 1) / 2);
  EXPECT_TRUE(tally.is_sound());
}

TEST(Tally, IsSoundOnlyIfAllWereJudged) {
  Tally tally(2, 2);
  tally.add("a", "accepted");
  EXPECT_FALSE(tally.is_sound());
  tally.add("b", "platform");
  EXPECT_EQ(tally.done(), 2U);
  EXPECT_FALSE(tally.is_sound());
}

TEST(Tally, TellsTheBestFirstAndLeavesNothingOut) {
  Tally tally(4, 4);
  for (const char* verdict : {"surprise", "time_limit", "accepted", "accepted"})
    tally.add("a", verdict);
  EXPECT_EQ(tally.words(), "2 accepted, 1 time_limit, 1 surprise");
  std::string table = tally.table(2000ms);
  EXPECT_THAT(table, testing::HasSubstr("accepted    2      50.0 %\n"));
  EXPECT_THAT(table, testing::HasSubstr("4 of 4 verdicts in 2.0 s, 2.0 a second"));
}

TEST(Tally, Summary) {
  Tally tally(3, 2);
  tally.add("a", "accepted");
  EXPECT_EQ(
      to_text(tally.summary(500ms)),
      R"({"total":3,"done":1,"complete":false,"tasks":2,"verdicts":{"accepted":1},"pass_rate":1,)"
      R"("pass_at_1":1,"duration_s":0.5,"per_second":2})");
}

TEST(Tally, NothingAtAll) {
  Tally tally(0, 0);
  EXPECT_EQ(tally.pass_rate(), 0);
  EXPECT_EQ(tally.pass_at_1(), 0);
  EXPECT_EQ(tally.words(), "");
}

}  // namespace
}  // namespace asr
