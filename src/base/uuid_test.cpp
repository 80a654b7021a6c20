#include "base/uuid.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <set>

namespace asr {
namespace {

TEST(Uuid, IsRandomAndSaysSo) {
  const std::regex form("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::string text = random_uuid();
    EXPECT_TRUE(std::regex_match(text, form)) << text;
    EXPECT_EQ(text.size(), kUuidLength);
    EXPECT_TRUE(seen.insert(text).second);
  }
}

}  // namespace
}  // namespace asr
