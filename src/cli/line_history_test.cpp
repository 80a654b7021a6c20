#include "cli/line_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace asr {
namespace {

namespace fs = std::filesystem;

class LineHistoryTest : public testing::Test {
 protected:
  LineHistoryTest() : folder_(fs::path(testing::TempDir()) / "line-history-XXXXXX") {
    std::string name = folder_.native();
    if (::mkdtemp(name.data())) folder_ = name;
  }
  ~LineHistoryTest() override { fs::remove_all(folder_); }

  fs::path file() const { return folder_ / "state" / "history-python"; }

  fs::path folder_;
};

TEST_F(LineHistoryTest, IsThereTheNextTime) {
  {
    LineHistory history(file());
    EXPECT_TRUE(history.add("x = 1"));
    EXPECT_TRUE(history.add("  print(x)"));
  }
  EXPECT_THAT(LineHistory(file()).lines(), testing::ElementsAre("x = 1", "  print(x)"));
}

TEST_F(LineHistoryTest, IsForItsOwnerOnly) {
  LineHistory(file()).add("secret");
  struct stat info {};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(::stat(file().parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

TEST_F(LineHistoryTest, LeavesOutWhatNobodyWantsAgain) {
  LineHistory history(file());
  EXPECT_TRUE(history.add("x"));
  EXPECT_FALSE(history.add("x"));
  EXPECT_FALSE(history.add(""));
  EXPECT_FALSE(history.add(" \t"));
  EXPECT_FALSE(history.add(std::string(LineHistory::kLongest + 1, 'a')));
  EXPECT_FALSE(history.add("a\nb"));
  EXPECT_THAT(history.lines(), testing::ElementsAre("x"));
}

TEST_F(LineHistoryTest, TwoPromptsAddToOne) {
  LineHistory one(file());
  LineHistory two(file());
  one.add("first");
  two.add("second");
  one.add("third");
  EXPECT_THAT(LineHistory(file()).lines(), testing::ElementsAre("first", "second", "third"));
}

TEST_F(LineHistoryTest, IsBounded) {
  fs::create_directories(file().parent_path());
  {
    std::ofstream stream(file());
    for (int i = 0; i < 5000; ++i) stream << "line " << i << "\n";
  }
  LineHistory history(file());
  ASSERT_EQ(history.lines().size(), LineHistory::kMost);
  EXPECT_EQ(history.lines().front(), "line 4000");
  EXPECT_EQ(history.lines().back(), "line 4999");
  std::ifstream stream(file());
  std::size_t left = 0;
  for (std::string line; std::getline(stream, line);) ++left;
  EXPECT_EQ(left, LineHistory::kMost);
}

TEST_F(LineHistoryTest, FollowsNoLinkAndBearsWhatCannotBeWritten) {
  fs::create_directories(file().parent_path());
  fs::create_symlink(folder_ / "elsewhere", file());
  LineHistory history(file());
  EXPECT_TRUE(history.add("x"));
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
}

}  // namespace
}  // namespace asr
