#include "engine/id_ranges.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

class Ranges : public testing::Test {
 protected:
  Ranges() : locks_(std::filesystem::temp_directory_path() / ("asr-ids-" + random_name(10))) {}
  ~Ranges() override { EXPECT_TRUE(remove_tree(AT_FDCWD, locks_.native())); }
  static std::uint32_t block_of(std::uint32_t id) {
    return (id - IdRanges::kFirst) / IdRanges::kRangeSize / IdRanges::kRangesPerBlock;
  }
  std::filesystem::path locks_;
};

TEST_F(Ranges, NeverOverlap) {
  IdRanges ids(locks_);
  std::set<std::uint32_t> taken;
  for (int i = 0; i < 300; ++i) {
    auto first = ids.take();
    ASSERT_TRUE(first);
    EXPECT_GE(*first, IdRanges::kFirst);
    EXPECT_EQ((*first - IdRanges::kFirst) % IdRanges::kRangeSize, 0U);
    EXPECT_TRUE(taken.insert(*first).second);
  }
}

TEST_F(Ranges, TwoInstancesShareNoBlock) {
  IdRanges one(locks_);
  IdRanges two(locks_);
  EXPECT_NE(block_of(*one.take()), block_of(*two.take()));
}

// The lock ends with its owner, however that ends.
TEST_F(Ranges, AnotherProcessKeepsItsBlockUntilItDies) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  UniqueFd reader(pipe[0]);
  UniqueFd writer(pipe[1]);
  int child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    IdRanges ids(locks_);
    std::uint32_t first = ids.take().value_or(0);
    (void)!::write(writer.get(), &first, sizeof first);
    for (;;) ::pause();
  }
  std::uint32_t theirs = 0;
  ASSERT_EQ(::read(reader.get(), &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  EXPECT_NE(theirs, 0U);
  {
    IdRanges ids(locks_);
    EXPECT_NE(block_of(*ids.take()), block_of(theirs));
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  IdRanges ids(locks_);
  EXPECT_EQ(block_of(*ids.take()), block_of(theirs));
}

TEST_F(Ranges, AnAdoptedOneIsNobodyElses) {
  std::uint32_t used = 0;
  UniqueFd lock;
  {
    IdRanges dead(locks_);
    used = *dead.take();
    lock = dead.copy_lock(used);
    ASSERT_TRUE(lock);
  }
  // Held by nobody but us, and still taken.
  IdRanges other(locks_);
  EXPECT_NE(block_of(*other.take()), block_of(used));

  IdRanges next(locks_);
  EXPECT_TRUE(next.adopt(used, std::move(lock)));
  for (std::uint32_t i = 1; i < IdRanges::kRangesPerBlock; ++i) {
    std::uint32_t first = *next.take();
    EXPECT_EQ(block_of(first), block_of(used));
    EXPECT_NE(first, used);
  }
  EXPECT_FALSE(next.adopt(used, next.copy_lock(used))) << "twice";
  EXPECT_FALSE(next.adopt(17, next.copy_lock(used))) << "no range at all";
  next.give_back(used);
  EXPECT_EQ(*next.take(), used);
}

// Something of the last owner may linger under an id: it rests as long as it can.
TEST_F(Ranges, AReturnedRangeIsTheLastToBeUsedAgain) {
  IdRanges ids(locks_);
  std::uint32_t first = *ids.take();
  ids.give_back(first);
  for (std::uint32_t i = 1; i < IdRanges::kRangesPerBlock; ++i) EXPECT_NE(*ids.take(), first) << i;
  EXPECT_EQ(*ids.take(), first);
}

TEST_F(Ranges, RunningOutIsAnErrorThatPasses) {
  IdRanges ids(locks_);
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < IdRanges::kBlocks * IdRanges::kRangesPerBlock; ++i) {
    auto first = ids.take();
    ASSERT_TRUE(first) << i << ": " << first.error().what;
    last = *first;
  }
  EXPECT_LT(last, 0xfffe0000U);
  auto none = ids.take();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::exhausted);
  EXPECT_FALSE(none.error().hint.empty());
  ids.give_back(last);
  EXPECT_EQ(*ids.take(), last);
}

}  // namespace
}  // namespace asr
