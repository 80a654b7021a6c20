#include "cli/branch_answer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace asr {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

json::object context(const std::string& id, const std::string& language, const char* memory) {
  return {{"context_id", id}, {"language", language}, {"memory", memory}};
}

TEST(BranchAnswer, SaysNothingWhereAllComesAlong) {
  json::object python = context("python", "python", "saved");
  python["lost"] = json::array();
  EXPECT_THAT(losses_of(json::object{{"contexts", {python, context("x1", "bash", "none")}},
                                     {"programs_lost", 0}}),
              IsEmpty());
}

TEST(BranchAnswer, WarnsOfAllThatDoesNotComeAlong) {
  json::object python = context("x1", "python", "saved");
  python["lost"] = {"2 threads", "socket 4\033[2J"};
  json::object node = context("javascript", "javascript", "lost");
  node["why"] = "interpreters of javascript cannot be saved";
  EXPECT_THAT(losses_of(json::object{{"contexts", {python, node}}, {"programs_lost", 3}}),
              ElementsAre("x1 (python): these do not come along: 2 threads, socket 4?[2J",
                          "javascript: its variables do not come along: "
                          "interpreters of javascript cannot be saved",
                          "programs that run and do not come along: 3"));
}

TEST(BranchAnswer, MarksTheCheckpointWhereTheSessionIs) {
  json::object one{
      {"number", 1},         {"name", "a"},       {"parent", nullptr}, {"created_at", "now"},
      {"files_bytes", 1024}, {"memory_bytes", 0}, {"before", ""},      {"survives_server", true}};
  json::object two = one;
  two["number"] = 2;
  two["parent"] = 1;
  two["name"] = nullptr;
  two["before"] = "x = 1";
  two["survives_server"] = false;
  EXPECT_EQ(checkpoint_table({one, two}, 2, Letters::ascii),
            "NUMBER  AFTER  CREATED  FILES    MEMORY  KEPT       NAME\n"
            "1              now      1.0 KiB  0 B     on disk    a\n"
            "2       1      now      1.0 KiB  0 B     in memory  before: x = 1  <-- now\n");
}

}  // namespace
}  // namespace asr
