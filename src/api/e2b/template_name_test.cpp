#include "api/e2b/template_name.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(E2bTemplateNames, HaveATagAndATeam) {
  using Name = E2bTemplateName;
  EXPECT_EQ(*e2b_template_name("base"), (Name{"base", "default"}));
  EXPECT_EQ(*e2b_template_name("mine:v1.2"), (Name{"mine", "v1.2"}));
  EXPECT_EQ(*e2b_template_name("team/mine:v1"), (Name{"mine", "v1"}));
}

TEST(E2bTemplateNames, AreNoPaths) {
  for (const char* text : {"", ":", "a:", "/", "a/", "a/b/c", "../x", "a b", "a:b:c", "ä"})
    EXPECT_FALSE(e2b_template_name(text)) << text;
  EXPECT_FALSE(e2b_template_name(std::string(200, 'a')));
}

TEST(E2bTemplateNames, SomeAreOurs) {
  EXPECT_EQ(e2b_built_in("base"), "host");
  EXPECT_EQ(e2b_built_in("code-interpreter-v1"), "host");
  EXPECT_FALSE(e2b_built_in("mine"));
  EXPECT_EQ(e2b_known_image("e2bdev/base:latest"), "host");
  EXPECT_FALSE(e2b_known_image("python:3.12"));
}

}  // namespace
}  // namespace asr
