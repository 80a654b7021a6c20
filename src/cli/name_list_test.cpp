#include "cli/name_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace asr {
namespace {

using testing::ElementsAre;

TEST(NameList, TakesOnlyWhatGoesOnAndIsHarmless) {
  EXPECT_THAT(usable_matches(
                  {"x.b", "x.a", "x.a", "y", "x.", "x.\033[2J", "x.\n", "x.\xC2\x9B", "x.ä"}, "x."),
              ElementsAre("x.a", "x.b", "x.ä"));
}

TEST(NameList, FindsTheCommonStart) {
  EXPECT_EQ(common_start({"print(alpha", "print(alphabet", "print(alps"}), "print(alp");
  EXPECT_EQ(common_start({"one"}), "one");
  EXPECT_EQ(common_start({"a", "b"}), "");
  EXPECT_EQ(common_start({}), "");
  EXPECT_EQ(common_start({"x\xC3\xA4", "x\xC3\xB6"}), "x");  // not half of a letter
}

TEST(NameList, ShowsNamesInColumns) {
  EXPECT_EQ(name_list({"f(a.bb", "f(a.c", "f(a.ddd"}, "f(a.", 80), "bb   c    ddd\n");
  EXPECT_EQ(name_list({"f(a.bb", "f(a.c", "f(a.ddd"}, "f(a.", 10), "bb   ddd\nc\n");
  EXPECT_EQ(name_list({"abc", "abd"}, "ab", 1), "abc\nabd\n");
}

TEST(NameList, IsBounded) {
  std::vector<std::string> many;
  for (int i = 0; i < 150; ++i) many.push_back("n" + std::to_string(i));
  EXPECT_THAT(name_list(many, "n", 80), testing::HasSubstr("and 50 more\n"));
}

}  // namespace
}  // namespace asr
