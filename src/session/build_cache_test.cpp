#include "session/build_cache.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

BuiltPtr executable(std::size_t bytes) {
  Built built;
  built.ok = true;
  built.executable = std::string(bytes, 'x');
  return std::make_shared<const Built>(std::move(built));
}

TEST(BuildCache, GivesBackWhatWasPut) {
  BuildCache cache(1 << 20);
  EXPECT_EQ(cache.find("a", "one"), nullptr);
  cache.put("a", "one", executable(10));
  ASSERT_NE(cache.find("a", "one"), nullptr);
  EXPECT_EQ(cache.find("a", "one")->executable.size(), 10U);
  EXPECT_EQ(cache.find("a", "two"), nullptr);
}

TEST(BuildCache, NobodySeesWhatIsAnothers) {
  BuildCache cache(1 << 20);
  cache.put("a", "one", executable(10));
  EXPECT_EQ(cache.find("b", "one"), nullptr);
  cache.put("b", "one", executable(20));
  EXPECT_EQ(cache.find("a", "one")->executable.size(), 10U);
}

TEST(BuildCache, ForgetsWhatWasNotUsedForLongest) {
  BuildCache cache(10'000);
  cache.put("a", "one", executable(3000));
  cache.put("a", "two", executable(3000));
  EXPECT_NE(cache.find("a", "one"), nullptr);
  cache.put("a", "three", executable(5000));
  EXPECT_EQ(cache.find("a", "two"), nullptr);
  EXPECT_NE(cache.find("a", "one"), nullptr);
  EXPECT_LE(cache.bytes(), 10'000U);
}

TEST(BuildCache, WhoHasMuchMakesRoomForWhoHasLittle) {
  BuildCache cache(10'000);
  cache.put("small", "one", executable(1000));
  for (int i = 0; i < 20; ++i) cache.put("large", std::to_string(i), executable(3000));
  EXPECT_NE(cache.find("small", "one"), nullptr);
  EXPECT_NE(cache.find("large", "19"), nullptr);
  EXPECT_EQ(cache.find("large", "0"), nullptr);
}

TEST(BuildCache, WhatIsTooLargeIsNotKept) {
  BuildCache cache(1000);
  cache.put("a", "one", executable(5000));
  EXPECT_EQ(cache.find("a", "one"), nullptr);
  EXPECT_EQ(cache.bytes(), 0U);
}

}  // namespace
}  // namespace asr
