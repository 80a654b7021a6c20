#include "session/checkpoints.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

class CheckpointsTest : public testing::Test {
 protected:
  std::uint64_t add(const std::string& name, std::uint64_t bytes = 1) {
    auto files = std::make_shared<SavedFiles>();
    files->bytes = bytes;
    auto state = std::make_shared<SavedState>();
    state->files = std::move(files);
    return all_.add(all_.next(), name, "", std::move(state), !name.empty())->number;
  }
  std::uint64_t undo() {
    auto last = all_.last_automatic();
    if (!last) return 0;
    all_.drop((*last)->number);
    return (*last)->number;
  }
  Checkpoints all_;
};

TEST_F(CheckpointsTest, UndoGoesBackOverNamedOnes) {
  auto first = add("");
  add("named");
  auto second = add("");
  EXPECT_EQ(undo(), second);
  EXPECT_EQ(undo(), first);
  EXPECT_EQ(undo(), 0U);
}

TEST_F(CheckpointsTest, WhatIsRemovedBreaksNoWay) {
  auto first = add("");
  add("named");
  auto second = add("");
  ASSERT_TRUE(all_.remove("named"));
  EXPECT_EQ(undo(), second);
  EXPECT_EQ(undo(), first);
}

TEST_F(CheckpointsTest, NobodyUndoesTwoStepsForOne) {
  add("");
  all_.note_gap();
  auto third = add("");
  EXPECT_EQ(undo(), third);
  EXPECT_EQ(undo(), 0U);
}

TEST_F(CheckpointsTest, WhatWasRunAfterACheckpointIsForgottenByGoingBackToIt) {
  auto first = add("");
  auto named = add("named");
  all_.note_gap();
  EXPECT_EQ(undo(), 0U);
  all_.set_at(named);
  EXPECT_EQ(undo(), first);
}

TEST_F(CheckpointsTest, OldOnesMakeRoom) {
  add("named", Checkpoints::kMostAutomaticBytes);
  auto first = add("", Checkpoints::kMostAutomaticBytes / 2);
  auto second = add("", Checkpoints::kMostAutomaticBytes / 2);
  EXPECT_EQ(all_.all().size(), 3U);
  auto third = add("", Checkpoints::kMostAutomaticBytes * 2);
  EXPECT_EQ(all_.all().size(), 2U);
  EXPECT_NE(first, second);
  EXPECT_EQ(undo(), third);
  EXPECT_EQ(undo(), 0U);
  for (std::size_t i = 0; i < Checkpoints::kMostAutomatic + 5; ++i) add("");
  EXPECT_EQ(all_.all().size(), Checkpoints::kMostAutomatic + 1);
}

TEST_F(CheckpointsTest, KnowsWhereItIsWithoutThoseThatGoWithTheServer) {
  EXPECT_EQ(all_.durable_at(), 0U);
  add("");
  EXPECT_EQ(all_.durable_at(), 0U);
  auto named = add("named");
  add("");
  EXPECT_EQ(all_.durable_at(), named);
}

}  // namespace
}  // namespace asr
