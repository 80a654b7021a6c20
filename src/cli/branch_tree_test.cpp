#include "cli/branch_tree.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

namespace asr {
namespace {

json::object checkpoint(std::uint64_t number, std::uint64_t parent, const std::string& name) {
  return {{"number", number},
          {"name", name},
          {"parent", parent == 0 ? json::value(nullptr) : json::value(parent)},
          {"created_at", "2026-01-02T03:04:0" + std::to_string(number) + ".000Z"},
          {"files_bytes", 3072},
          {"memory_bytes", number * (1 << 20)}};
}

json::object automatic(std::uint64_t number, std::uint64_t parent, const std::string& before) {
  json::object one = checkpoint(number, parent, "");
  one["name"] = nullptr;
  one["before"] = before;
  return one;
}

json::object session(const std::string& id, std::uint64_t at, json::array checkpoints,
                     json::array branches = {}) {
  return {{"session_id", id},
          {"state", "ready"},
          {"at", at == 0 ? json::value(nullptr) : json::value(at)},
          {"checkpoints", std::move(checkpoints)},
          {"branches", std::move(branches)}};
}

json::object from(json::object branch, std::uint64_t checkpoint) {
  branch["from"] = {
      {"session_id", "above"},
      {"checkpoint", checkpoint == 0 ? json::value(nullptr) : json::value(checkpoint)}};
  return branch;
}

std::string drawn(json::object tree, const std::string& asked, Letters letters = Letters::boxes) {
  return "\n" + draw_tree(json::object{{"tree", std::move(tree)}, {"session_id", asked}}, letters);
}

// a, then b; back to a, then c. One branch from b, with one of its own from its beginning.
json::object usual_tree() {
  json::object grandchild = from(session("third", 0, {}), 0);
  json::object child = from(session("second", 1, {checkpoint(1, 0, "more")}, {grandchild}), 2);
  return session("first", 3, {checkpoint(1, 0, "a"), checkpoint(2, 1, "b"), checkpoint(3, 1, "c")},
                 {child});
}

TEST(BranchTree, DrawsWhatFollowsBelowAndOtherWaysBeside) {
  EXPECT_EQ(drawn(usual_tree(), "second"), R"(
○ first  ready
● a           2026-01-02T03:04:01.000Z  files 3.0 KiB, memory 1.0 MiB
├──● b        2026-01-02T03:04:02.000Z  files 3.0 KiB, memory 2.0 MiB
│  └──◉ second  ready
│     ├──○ third  ready  ◀ now
│     ● more  2026-01-02T03:04:01.000Z  files 3.0 KiB, memory 1.0 MiB  ◀ now
● c           2026-01-02T03:04:03.000Z  files 3.0 KiB, memory 3.0 MiB  ◀ now
)");
}

TEST(BranchTree, IsPlainWhereThereAreNoBoxes) {
  std::string plain = drawn(usual_tree(), "second", Letters::ascii);
  EXPECT_EQ(plain.find_first_of("\x80\xE2\x94"), std::string::npos);
  EXPECT_EQ(plain, R"(
o first  ready
* a           2026-01-02T03:04:01.000Z  files 3.0 KiB, memory 1.0 MiB
+--* b        2026-01-02T03:04:02.000Z  files 3.0 KiB, memory 2.0 MiB
|  `--@ second  ready
|     +--o third  ready  <-- now
|     * more  2026-01-02T03:04:01.000Z  files 3.0 KiB, memory 1.0 MiB  <-- now
* c           2026-01-02T03:04:03.000Z  files 3.0 KiB, memory 3.0 MiB  <-- now
)");
}

TEST(BranchTree, GoesOnStraightToWhereTheSessionIs) {
  json::array checkpoints{checkpoint(1, 0, "a"), checkpoint(2, 1, "b"), checkpoint(3, 1, "c")};
  std::string text = drawn(session("one", 2, checkpoints), "one");
  EXPECT_LT(text.find("├──● c"), text.find("\n● b"));
  // Nowhere below a: what was saved last goes on straight.
  text = drawn(session("one", 1, checkpoints), "one");
  EXPECT_LT(text.find("├──● b"), text.find("\n● c"));
}

TEST(BranchTree, DoesWithoutCheckpointsThatWereRemoved) {
  json::object branch = from(session("two", 0, {}), 7);
  EXPECT_EQ(drawn(session("one", 8, {checkpoint(3, 2, "x")}, {branch}), "one"), R"(
◉ one  ready  ◀ now
├──○ two  ready  ◀ now
● x  2026-01-02T03:04:03.000Z  files 3.0 KiB, memory 3.0 MiB
)");
}

TEST(BranchTree, TellsWhatAutomaticOnesCameBefore) {
  std::string text = drawn(session("one", 1, {automatic(1, 0, "x = 1")}), "one");
  EXPECT_NE(text.find("● before: x = 1  "), std::string::npos);
  // Whole letters, and none that speaks to a terminal.
  std::string word = "ä";
  for (int i = 0; i < 30; ++i) word += "ö";
  text = drawn(session("one", 1, {automatic(1, 0, "\033[2J" + word)}), "one");
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_NE(text.find("ö...  "), std::string::npos);
}

class Locale : public testing::Test {
 protected:
  static constexpr const char* kNames[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < before_.size(); ++i)
      before_[i] ? ::setenv(kNames[i], before_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
  }

 private:
  std::vector<std::optional<std::string>> before_;
};

TEST_F(Locale, SaysWhichLettersThereAre) {
  EXPECT_EQ(letters_of_locale(), Letters::ascii);
  ::setenv("LANG", "de_DE.UTF-8", 1);
  EXPECT_EQ(letters_of_locale(), Letters::boxes);
  ::setenv("LC_CTYPE", "de_DE", 1);
  EXPECT_EQ(letters_of_locale(), Letters::ascii);
  ::setenv("LC_ALL", "C.utf8", 1);
  EXPECT_EQ(letters_of_locale(), Letters::boxes);
}

}  // namespace
}  // namespace asr
