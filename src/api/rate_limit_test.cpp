#include "api/rate_limit.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using namespace std::chrono_literals;

TEST(RateLimit, ABurstThenARate) {
  RateLimiter limiter({10, 3}, 100);
  auto now = RateLimiter::Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limiter.take("a", now), 0ms);
  EXPECT_EQ(limiter.take("a", now), 100ms);
  EXPECT_EQ(limiter.take("b", now), 0ms);
  EXPECT_EQ(limiter.take("a", now + 100ms), 0ms);
  EXPECT_GT(limiter.take("a", now + 100ms), 0ms);
  EXPECT_EQ(limiter.take("a", now - 1h), 100ms);  // A clock that steps back gives nothing away.
}

TEST(RateLimit, TheNumberOfNamesIsBounded) {
  RateLimiter limiter({1, 1}, 3);
  auto now = RateLimiter::Clock::now();
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(limiter.take(name, now), 0ms);
  EXPECT_GT(limiter.take("a", now), 0ms);  // Used again, so "b" is the oldest.
  EXPECT_EQ(limiter.take("d", now), 0ms);
  EXPECT_EQ(limiter.take("b", now), 0ms);
  EXPECT_GT(limiter.take("a", now), 0ms);
}

TEST(RateLimit, ZeroIsNoLimit) {
  RateLimiter limiter({0, 0}, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limiter.take("a"), 0ms);
}

}  // namespace
}  // namespace asr
