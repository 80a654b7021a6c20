#include "api/e2b/tokens.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(E2bTokens, AreTheSameForTheSameServerAndSandboxOnly) {
  SecretKey key{};
  key[0] = 1;
  SecretBox box(key);
  SecretBox same(key);
  SecretBox other(random_secret_key());
  E2bTokens tokens(box);
  EXPECT_EQ(tokens.envd("a"), E2bTokens(same).envd("a"));
  EXPECT_NE(tokens.envd("a"), tokens.envd("b"));
  EXPECT_NE(tokens.envd("a"), tokens.traffic("a"));
  EXPECT_NE(tokens.envd("a"), E2bTokens(other).envd("a"));
  EXPECT_EQ(tokens.envd("a").size(), 64U);
}

TEST(E2bTokens, KnowTheirOwn) {
  SecretBox box(random_secret_key());
  E2bTokens tokens(box);
  EXPECT_TRUE(tokens.is_envd("a", tokens.envd("a")));
  EXPECT_TRUE(tokens.is_traffic("a", tokens.traffic("a")));
  EXPECT_FALSE(tokens.is_envd("a", tokens.traffic("a")));
  EXPECT_FALSE(tokens.is_envd("a", tokens.envd("b")));
  EXPECT_FALSE(tokens.is_envd("a", ""));
  EXPECT_FALSE(tokens.is_envd("a", tokens.envd("a") + "x"));
}

}  // namespace
}  // namespace asr
