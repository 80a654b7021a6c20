#include "session/saved_budget.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace asr {
namespace {

TEST(SavedBudget, CountsWhatLives) {
  SavedBudget budget(100, 1000);
  auto first = budget.charge("a", 60);
  EXPECT_EQ(*budget.room_of("a"), 40U);
  EXPECT_EQ(*budget.room_of("b"), 100U);
  auto second = budget.charge("a", 60);
  ASSERT_FALSE(budget.room_of("a"));
  EXPECT_EQ(budget.room_of("a").error().code, Errc::exhausted);
  auto copy = first;
  first.reset();
  EXPECT_FALSE(budget.room_of("a"));  // Somebody still has it.
  copy.reset();
  EXPECT_EQ(*budget.room_of("a"), 40U);
}

TEST(SavedBudget, NobodyFillsMoreThanThereIs) {
  SavedBudget budget(100, 150);
  auto first = budget.charge("a", 100);
  EXPECT_EQ(*budget.room_of("b"), 50U);
  auto second = budget.charge("b", 50);
  EXPECT_FALSE(budget.room_of("c"));
}

TEST(SavedBudget, ChargesMayOutliveIt) {
  auto budget = std::make_unique<SavedBudget>(100, 1000);
  auto charge = budget->charge("a", 1);
  budget.reset();
  charge.reset();
}

}  // namespace
}  // namespace asr
