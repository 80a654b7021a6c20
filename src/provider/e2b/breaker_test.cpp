#include "provider/e2b/breaker.hpp"

#include <gtest/gtest.h>

namespace asr::e2b {
namespace {

using namespace std::chrono_literals;

TEST(Breaker, OpensAfterSeveralFailuresAndLetsOneTry) {
  Breaker breaker;
  Breaker::Clock::time_point now{};
  now += 1h;
  for (int i = 0; i < Breaker::kPatience; ++i) {
    EXPECT_TRUE(breaker.may_try(now));
    breaker.failed(now);
  }
  EXPECT_FALSE(breaker.may_try(now));
  EXPECT_TRUE(breaker.is_open(now));
  EXPECT_EQ(breaker.left(now), Breaker::kFirstRest);
  now += Breaker::kFirstRest;
  EXPECT_TRUE(breaker.may_try(now));   // one
  EXPECT_FALSE(breaker.may_try(now));  // not two
  breaker.failed(now);
  EXPECT_FALSE(breaker.may_try(now + Breaker::kFirstRest));  // The rest is longer now.
  now += 1h;
  EXPECT_TRUE(breaker.may_try(now));
  breaker.answered();
  EXPECT_TRUE(breaker.may_try(now));
  EXPECT_TRUE(breaker.may_try(now));
}

// A sandbox's life is renewed for 15 s at least: who is back again must be found before it is over.
TEST(Breaker, NoRestIsLongerThanALease) {
  Breaker breaker;
  Breaker::Clock::time_point now{};
  now += 1h;
  for (int i = 0; i < 100; ++i) {
    breaker.failed(now);
    EXPECT_LE(breaker.left(now), Breaker::kLongestRest);
    now += Breaker::kLongestRest;
    EXPECT_TRUE(breaker.may_try(now)) << i;
  }
  EXPECT_LT(Breaker::kLongestRest, 15s);
}

TEST(Breaker, SingleFailuresAreForgotten) {
  Breaker breaker;
  Breaker::Clock::time_point now{};
  for (int i = 0; i < 100; ++i) {
    breaker.failed(now);
    breaker.answered();
    EXPECT_TRUE(breaker.may_try(now));
  }
}

}  // namespace
}  // namespace asr::e2b
