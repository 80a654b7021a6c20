#include "session/change_list.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using Kind = FileChange::Kind;

FileChange change(std::string path, Kind kind, std::uint64_t size, std::uint64_t size_before,
                  std::uint64_t stamp, FileType type = FileType::file) {
  FileChange made;
  made.path = std::move(path);
  made.kind = kind;
  made.type = type;
  made.size = size;
  made.size_before = size_before;
  made.stamp = stamp;
  return made;
}

// "+path 0>3": what came, changed or went, and its sizes.
std::string told(const std::vector<FileChange>& before, const std::vector<FileChange>& after) {
  std::string text;
  for (const FileChange& entry :
       changes_between({before, true}, {after, true}, Moments::of_one_sandbox).entries)
    text += std::string(1, "+~-"[static_cast<int>(entry.kind)]) + entry.path + " " +
            std::to_string(entry.size_before) + ">" + std::to_string(entry.size) + "\n";
  return text;
}

TEST(ChangesBetween, TheSameTwiceIsNothing) {
  std::vector<FileChange> all{change("/a", Kind::added, 3, 0, 1),
                              change("/b", Kind::changed, 3, 5, 2),
                              change("/c", Kind::removed, 0, 5, 3)};
  EXPECT_EQ(told(all, all), "");
  EXPECT_EQ(told({}, {}), "");
}

TEST(ChangesBetween, FromTheBeginningItIsTheLaterOne) {
  std::vector<FileChange> all{change("/a", Kind::added, 3, 0, 1),
                              change("/b", Kind::changed, 3, 5, 2),
                              change("/c", Kind::removed, 0, 5, 3)};
  EXPECT_EQ(told({}, all), "+/a 0>3\n~/b 5>3\n-/c 5>0\n");
}

TEST(ChangesBetween, BackToTheBeginningIsTheOppositeOfIt) {
  std::vector<FileChange> all{change("/a", Kind::added, 3, 0, 1),
                              change("/b", Kind::changed, 3, 5, 2),
                              change("/c", Kind::removed, 0, 5, 3)};
  EXPECT_EQ(told(all, {}), "-/a 3>0\n~/b 3>5\n+/c 0>5\n");
}

TEST(ChangesBetween, AStampTellsWhatSizesDoNot) {
  EXPECT_EQ(told({change("/a", Kind::changed, 3, 5, 1)}, {change("/a", Kind::changed, 3, 5, 2)}),
            "~/a 3>3\n");
}

TEST(ChangesBetween, InAnotherSandboxTimesTellWhatStampsDoNot) {
  Changes then{{change("/a", Kind::added, 3, 0, 1), change("/d", Kind::added, 0, 0, 2)}, true};
  then.entries[0].modified_ns = 5;
  then.entries[1].type = FileType::directory;
  Changes now = then;
  now.entries[0].stamp = now.entries[1].stamp = 77;
  now.entries[1].modified_ns = 9;  // A folder's tells what came and went in it, and that is told.
  EXPECT_TRUE(changes_between(then, now, Moments::of_two).entries.empty());
  now.entries[0].modified_ns = 6;
  EXPECT_EQ(changes_between(then, now, Moments::of_two).entries.size(), 1U);
  now = then;
  now.entries[1].mode = 0700;
  EXPECT_EQ(changes_between(then, now, Moments::of_two).entries.size(), 1U);
}

TEST(ChangesBetween, WhatWentAndCameBack) {
  EXPECT_EQ(told({change("/a", Kind::removed, 0, 5, 0)}, {change("/a", Kind::changed, 7, 5, 2)}),
            "+/a 0>7\n");
  EXPECT_EQ(told({change("/a", Kind::changed, 7, 5, 2)}, {change("/a", Kind::removed, 0, 5, 9)}),
            "-/a 7>0\n");
  EXPECT_EQ(told({change("/a", Kind::removed, 0, 5, 1)}, {change("/a", Kind::removed, 0, 5, 2)}),
            "");
}

TEST(ChangesBetween, WhatLayInAFolderThatIsGoneIsNotTold) {
  EXPECT_EQ(told({change("/d/new", Kind::added, 1, 0, 1), change("/d/old", Kind::changed, 2, 1, 2)},
                 {change("/d", Kind::removed, 0, 0, 3, FileType::directory)}),
            "-/d 0>0\n");
  // A file took the folder's place.
  EXPECT_EQ(told({change("/d/new", Kind::added, 1, 0, 1)},
                 {change("/d", Kind::changed, 9, 0, 3, FileType::file)}),
            "~/d 0>9\n");
}

TEST(ChangesBetween, AFolderThatIsBackBringsWhatIsInIt) {
  std::vector<FileChange> gone{change("/d", Kind::removed, 0, 0, 1, FileType::directory)};
  EXPECT_EQ(
      told(gone, {change("/d", Kind::changed, 0, 0, 2, FileType::directory),
                  change("/d/a", Kind::changed, 4, 6, 3), change("/d/b", Kind::removed, 0, 6, 4)}),
      "+/d 0>0\n+/d/a 0>4\n");
  EXPECT_EQ(told(gone, {}), "+/d 0>0\n");
}

TEST(ChangesBetween, NamesThatBeginAlikeAreNotInEachOther) {
  EXPECT_EQ(told({change("/ab/c", Kind::added, 1, 0, 1)},
                 {change("/a", Kind::removed, 0, 0, 3, FileType::directory)}),
            "-/a 0>0\n-/ab/c 1>0\n");
  EXPECT_TRUE(is_within("/a/b", "/a"));
  EXPECT_TRUE(is_within("/a/b", "/a/"));
  EXPECT_TRUE(is_within("/a", "/a"));
  EXPECT_TRUE(is_within("/a", "/"));
  EXPECT_FALSE(is_within("/ab", "/a"));
}

TEST(ChangesBetween, IsCompleteIfBothAre) {
  EXPECT_TRUE(changes_between({{}, true}, {{}, true}, Moments::of_one_sandbox).complete);
  EXPECT_FALSE(changes_between({{}, false}, {{}, true}, Moments::of_one_sandbox).complete);
  EXPECT_FALSE(changes_between({{}, true}, {{}, false}, Moments::of_one_sandbox).complete);
}

}  // namespace
}  // namespace asr
