#include "engine/told_changes.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

wire::ChangeList list_of(std::vector<std::string> paths) {
  wire::ChangeList list;
  for (std::string& path : paths) {
    wire::FileChange change;
    change.path = std::move(path);
    list.entries.push_back(std::move(change));
  }
  return list;
}

TEST(ToldChanges, ComeInOrder) {
  ToldChanges told;
  ASSERT_TRUE(told.add(list_of({"/b", "/a/b", "/a-b"})));
  ASSERT_TRUE(told.add(list_of({"/", "/a"})));
  std::vector<std::string> paths;
  for (const FileChange& change : told.take().entries) paths.push_back(change.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"/", "/a", "/a-b", "/a/b", "/b"}));
}

TEST(ToldChanges, OfOnePathTheLastHolds) {
  ToldChanges told;
  wire::ChangeList list = list_of({"/a", "/a"});
  list.entries[0].size = 1;
  list.entries[1].size = 2;
  ASSERT_TRUE(told.add(std::move(list)));
  Changes changes = told.take();
  ASSERT_EQ(changes.entries.size(), 1U);
  EXPECT_EQ(changes.entries[0].size, 2U);
}

TEST(ToldChanges, PathsAreAbsoluteAndPlain) {
  for (const char* path :
       {"", "a", "a/b", "//", "//a", "/a/", "/a//b", "/.", "/..", "/a/..", "/a/./b", "/../a"})
    EXPECT_FALSE(ToldChanges().add(list_of({path}))) << path;
  EXPECT_FALSE(ToldChanges().add(list_of({std::string("/a\0b", 4)})));
  EXPECT_FALSE(ToldChanges().add(list_of({"/" + std::string(4096, 'a')})));
  for (const char* path : {"/...", "/..a", "/a..", "/.a", "/a/\n", "/\xff"})
    EXPECT_TRUE(ToldChanges().add(list_of({path}))) << path;
}

TEST(ToldChanges, NumbersThatMeanNothingAreRefused) {
  wire::ChangeList list = list_of({"/a"});
  list.entries[0].kind = static_cast<wire::ChangeKind>(3);
  EXPECT_FALSE(ToldChanges().add(list));
  list = list_of({"/a"});
  list.entries[0].type = static_cast<wire::EntryType>(4);
  EXPECT_FALSE(ToldChanges().add(list));
  list = list_of({"/a"});
  list.entries[0].target = std::string(5000, 'x');
  EXPECT_FALSE(ToldChanges().add(list));
  list = list_of({"/a"});
  list.entries[0].mode = 0xffffffff;
  ToldChanges told;
  ASSERT_TRUE(told.add(list));
  EXPECT_EQ(told.take().entries[0].mode, 07777U);
}

TEST(ToldChanges, WithoutEndIsAnError) {
  ToldChanges told;
  wire::ChangeList nothing;
  nothing.more = true;
  EXPECT_FALSE(told.add(nothing));
  Result<void> added;
  std::size_t frames = 0;
  for (; added && frames < 300; ++frames) {
    wire::ChangeList list;
    list.more = true;
    for (int i = 0; i < 1000; ++i) {
      wire::FileChange change;
      change.path = "/" + std::to_string(frames) + "/" + std::to_string(i);
      list.entries.push_back(std::move(change));
    }
    added = told.add(std::move(list));
  }
  EXPECT_EQ(frames, 201U);
}

TEST(ToldChanges, IncompleteIsSaidSo) {
  ToldChanges told;
  wire::ChangeList list = list_of({"/a"});
  list.complete = false;
  ASSERT_TRUE(told.add(std::move(list)));
  EXPECT_FALSE(told.take().complete);
}

}  // namespace
}  // namespace asr
