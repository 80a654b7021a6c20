#include "session/turns.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Turns, ThoseWhoWaitAlternate) {
  Turns turns;
  turns.wait("a", 100);
  turns.wait("b", 2);
  std::string order;
  for (int i = 0; i < 6; ++i) {
    auto who = turns.next();
    ASSERT_TRUE(who);
    order += *who;
    turns.done(*who);
  }
  EXPECT_EQ(order, "ababaa");
  EXPECT_EQ(turns.waiting(), 96U);
}

TEST(Turns, WhatTakesLongCostsOnlyItsOwner) {
  Turns turns;
  turns.wait("slow", 100);
  EXPECT_EQ(turns.next(), "slow");
  EXPECT_EQ(turns.next(), "slow");
  turns.wait("quick", 10);
  // With two places for the slow one, everything that becomes free is the quick one's.
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(turns.next(), "quick");
    turns.done("quick");
  }
  EXPECT_EQ(turns.in_work(), 2U);
}

TEST(Turns, NobodyWaitsMeansNobodysTurn) {
  Turns turns;
  EXPECT_FALSE(turns.next());
  turns.wait("a", 2);
  turns.leave("a", 1);
  EXPECT_EQ(turns.waiting_of("a"), 1U);
  EXPECT_EQ(turns.next(), "a");
  EXPECT_FALSE(turns.next());
  turns.leave("a", 5);
  turns.leave("nobody", 5);
  turns.done("nobody");
  EXPECT_EQ(turns.in_work(), 1U);
  turns.done("a");
  turns.done("a");
  EXPECT_EQ(turns.in_work(), 0U);
  EXPECT_EQ(turns.waiting(), 0U);
}

TEST(Turns, CanBeForThoseAloneWhoHaveLittle) {
  Turns turns;
  turns.wait("a", 3);
  EXPECT_EQ(turns.next(1), "a");
  EXPECT_FALSE(turns.next(1));
  turns.wait("b", 3);
  EXPECT_EQ(turns.next(1), "b");
  EXPECT_FALSE(turns.next(1));
  EXPECT_TRUE(turns.next(2));
}

TEST(Turns, WhoComesBackIsNotAhead) {
  Turns turns;
  turns.wait("a", 3);
  turns.wait("b", 3);
  EXPECT_EQ(turns.next(), "a");
  EXPECT_EQ(turns.next(), "b");
  turns.done("b");
  EXPECT_EQ(turns.next(), "b");
  turns.done("a");
  EXPECT_EQ(turns.next(), "a");
}

}  // namespace
}  // namespace asr
