#include "guest/changes.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Layers made by hand, as the kernel would have left them.
class ChangeWalkTest : public testing::Test {
 protected:
  ChangeWalkTest() : dir_(fs::temp_directory_path() / ("asr-changes-" + random_name(10))) {
    for (const char* name : {"scratch/upper", "lower0", "lower1"})
      fs::create_directories(dir_ / name);
    scratch_.one_id = true;  // Whoever runs the tests owns everything.
    Scratch::Tree tree;
    tree.base = open("scratch");
    tree.folder = "upper";
    tree.in_memory = false;
    tree.overlay = true;
    tree.lowers = {open("lower0"), open("lower1")};
    scratch_.trees.push_back(std::move(tree));
  }
  ~ChangeWalkTest() override {
    for (int fd : fds_) ::close(fd);
    EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native()));
  }

  int open(const std::string& name) {
    fds_.push_back(::open((dir_ / name).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return fds_.back();
  }
  std::string put(const std::string& name, const std::string& text = "x") {
    fs::path path = dir_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), 0644), 0);
    return path.native();
  }
  void put_folder(const std::string& name) {
    fs::create_directories(dir_ / name);
    EXPECT_EQ(::chmod((dir_ / name).c_str(), 0755), 0);
  }
  void put_whiteout(const std::string& name) {
    fs::create_directories((dir_ / name).parent_path());
    ASSERT_EQ(::mknod((dir_ / name).c_str(), S_IFCHR, 0), 0);
  }
  bool mark(const std::string& name, const char* attribute) {
    return ::setxattr((dir_ / name).c_str(), attribute, "y", 1, 0) == 0;
  }

  class Collector final : public ChangeWalk::Visitor {
   public:
    bool visit(const Written& written) override {
      ++visits;
      if (written.verdict == Written::Verdict::same) return true;
      std::string line = written.verdict == Written::Verdict::added     ? "+ "
                         : written.verdict == Written::Verdict::changed ? "* "
                                                                        : "- ";
      line += written.path;
      if (written.hidden) line += " hidden";
      if (written.replaces) line += " replaces";
      lines.push_back(line);
      return lines.size() < most;
    }
    std::vector<std::string> lines;
    std::size_t visits = 0;
    std::size_t most = SIZE_MAX;
  };

  std::vector<std::string> walk(WalkLimits limits = {.compared_bytes = 1000}) {
    Collector collector;
    auto end = ChangeWalk(scratch_, limits).run(collector);
    if (!end) ADD_FAILURE() << end.error().what;
    end_ = end.value_or(WalkEnd::stopped);
    return collector.lines;
  }

  fs::path dir_;
  Scratch scratch_;
  WalkEnd end_ = WalkEnd::complete;
  std::vector<int> fds_;
};

TEST_F(ChangeWalkTest, AnEmptyUpperLayerHasNone) {
  put("lower0/a/b");
  EXPECT_THAT(walk(), IsEmpty());
}

TEST_F(ChangeWalkTest, EitherLayerIsWhatWasThere) {
  put("lower0/top");
  put("lower1/bottom");
  put("lower1/d/deep");
  for (const char* name : {"top", "bottom", "d/deep", "new", "d/new"})
    put("scratch/upper/" + std::string(name), "other");
  EXPECT_THAT(walk(),
              UnorderedElementsAre("* /top", "* /bottom", "* /d/deep", "+ /new", "+ /d/new"));
}

TEST_F(ChangeWalkTest, WhatALayerHasRemovedWasNotThere) {
  put("lower1/gone");
  put("lower1/d/in");
  put("lower1/f/in");
  put_whiteout("lower0/gone");
  put_whiteout("lower0/d");
  put("lower0/f");  // A file hides a folder.
  put("scratch/upper/gone");
  put("scratch/upper/d/in");
  put("scratch/upper/f/in");
  EXPECT_THAT(walk(), UnorderedElementsAre("+ /gone", "+ /d", "+ /d/in", "* /f", "+ /f/in"));
}

TEST_F(ChangeWalkTest, BothWaysOfMarkingALayersFileAsGone) {
  put("lower1/gone");
  put("lower0/gone", "");
  put("scratch/upper/gone");
  EXPECT_THAT(walk(), UnorderedElementsAre("* /gone"));
  if (!mark("lower0/gone", "user.overlay.whiteout")) GTEST_SKIP() << "no attributes here";
  EXPECT_THAT(walk(), UnorderedElementsAre("+ /gone"));
}

TEST_F(ChangeWalkTest, ALayersFolderThatReplacesOneHidesIt) {
  put("lower1/d/old");
  put("lower0/d/kept");
  put("scratch/upper/d/old", "other");
  EXPECT_THAT(walk(), UnorderedElementsAre("* /d/old"));
  if (!mark("lower0/d", "user.overlay.opaque")) GTEST_SKIP() << "no attributes here";
  EXPECT_THAT(walk(), UnorderedElementsAre("+ /d/old"));
}

TEST_F(ChangeWalkTest, ReplacedFolderTellsWhatIsMissingOnce) {
  put("lower0/d/both");
  put("lower1/d/both");
  put("lower1/d/low");
  put("lower1/d/sub/x");
  put_whiteout("lower0/d/never");
  put("lower1/d/never");
  put("scratch/upper/d/kept");
  put("scratch/upper/d/sub/y");
  if (!mark("scratch/upper/d", "user.overlay.opaque")) GTEST_SKIP() << "no attributes here";
  std::vector<std::string> lines = walk();
  EXPECT_THAT(lines, UnorderedElementsAre("+ /d/kept", "- /d/both hidden", "- /d/low hidden",
                                          "+ /d/sub/y", "- /d/sub/x hidden"));
}

TEST_F(ChangeWalkTest, RemovedThingsAndMarksOverNothing) {
  put("lower0/f");
  put("lower0/d/in");
  put_whiteout("scratch/upper/f");
  put_whiteout("scratch/upper/d");
  put_whiteout("scratch/upper/nothing");
  EXPECT_THAT(walk(), UnorderedElementsAre("- /f", "- /d"));
  scratch_.trees[0].overlay = false;  // There it is a device that somebody made.
  EXPECT_THAT(walk(), UnorderedElementsAre("* /f", "* /d", "+ /nothing"));
}

TEST_F(ChangeWalkTest, CopiesAreComparedUpToTheLimit) {
  std::string below = put("lower0/f", "1234");
  std::string above = put("scratch/upper/f", "1234");
  fs::last_write_time(above, fs::last_write_time(below));
  EXPECT_THAT(walk(), IsEmpty());
  EXPECT_THAT(walk({.compared_bytes = 3}), UnorderedElementsAre("* /f"));
  put("scratch/upper/f", "1235");
  fs::last_write_time(above, fs::last_write_time(below));
  EXPECT_THAT(walk(), UnorderedElementsAre("* /f"));
}

TEST_F(ChangeWalkTest, FoldersCountByTheirModeOnly) {
  put_folder("lower0/d");
  put_folder("scratch/upper/d");
  EXPECT_THAT(walk(), IsEmpty());
  ::chmod((dir_ / "scratch/upper/d").c_str(), 0700);
  EXPECT_THAT(walk(), UnorderedElementsAre("* /d"));
}

TEST_F(ChangeWalkTest, WhatTheLaunchMadeIsNoneUntilItChanges) {
  scratch_.made = {{"/etc", 0755, 0, {}}, {"/etc/conf", 0644, 0, "text"}, {"/home", 0755, 0, {}}};
  put("lower0/etc/conf", "hidden by the launch");
  put_folder("scratch/upper/etc");
  put_folder("scratch/upper/home");
  put("scratch/upper/etc/conf", "text");
  EXPECT_THAT(walk(), IsEmpty());
  put("scratch/upper/etc/conf", "tex2");
  EXPECT_THAT(walk(), UnorderedElementsAre("* /etc/conf"));
  fs::remove(dir_ / "scratch/upper/etc/conf");
  fs::remove(dir_ / "scratch/upper/home");
  EXPECT_THAT(walk(), UnorderedElementsAre("- /etc/conf", "- /home"));
  fs::remove_all(dir_ / "scratch/upper/etc");
  EXPECT_THAT(walk(), UnorderedElementsAre("- /etc", "- /home"));
}

TEST_F(ChangeWalkTest, WhereSomethingElseIsMountedNothingIsLookedAt) {
  scratch_.covered = {"/usr", "/home/user"};
  scratch_.made = {{"/home", 0755, 0, {}}, {"/home/user", 0755, 0, {}}};
  put("scratch/upper/usr/x");
  put("scratch/upper/home/user/x");
  put("scratch/upper/home/other");
  ::chmod((dir_ / "scratch/upper/home").c_str(), 0755);
  EXPECT_THAT(walk(), UnorderedElementsAre("+ /home/other"));
}

TEST_F(ChangeWalkTest, StopsWhereItIsToldTo) {
  for (int i = 0; i < 100; ++i) put("scratch/upper/" + std::to_string(i));
  EXPECT_THAT(walk({.entries = 100}).size(), 100U);
  EXPECT_EQ(end_, WalkEnd::complete);
  EXPECT_LE(walk({.entries = 99}).size(), 99U);
  EXPECT_EQ(end_, WalkEnd::limited);
  Collector few;
  few.most = 10;
  auto end = ChangeWalk(scratch_, {}).run(few);
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, WalkEnd::stopped);
  EXPECT_EQ(few.lines.size(), 10U);
}

// A file system in memory lists new names first, and its folders say how many they have.
TEST_F(ChangeWalkTest, FilesThatAreAddedMeanwhileHideNoOthers) {
  constexpr int kFiles = 600;
  fs::path memory = fs::path("/dev/shm") / ("asr-changes-" + random_name(10));
  std::error_code ec;
  if (!fs::create_directories(memory / "upper/d", ec)) GTEST_SKIP() << "no /dev/shm";
  scratch_.trees[0].base = fds_.emplace_back(::open(memory.c_str(), O_PATH | O_CLOEXEC));
  scratch_.trees[0].in_memory = true;
  auto add = [&](const std::string& prefix) {
    for (int i = 0; i < kFiles; ++i)
      std::ofstream(memory / "upper/d" / (prefix + std::to_string(i)));
  };
  add("old");
  class Adding final : public ChangeWalk::Visitor {
   public:
    explicit Adding(std::function<void()> add) : add_(std::move(add)) {}
    bool visit(const Written& written) override {
      if (written.path == "/d") add_();
      if (written.path.starts_with("/d/old")) ++old;
      return true;
    }
    int old = 0;

   private:
    std::function<void()> add_;
  } adding([&] { add("new"); });
  ASSERT_TRUE(ChangeWalk(scratch_, {}).run(adding));
  EXPECT_EQ(adding.old, kFiles);
  EXPECT_TRUE(remove_tree(AT_FDCWD, memory.native()));
}

TEST_F(ChangeWalkTest, AWalkCanBeRepeated) {
  ChangeWalk again(scratch_, {});
  for (int i = 0; i < 3; ++i) {
    put("scratch/upper/d/" + std::to_string(i));
    Collector collector;
    ASSERT_TRUE(again.run(collector));
    EXPECT_EQ(collector.lines.size(), static_cast<std::size_t>(i) + 2);
  }
}

TEST_F(ChangeWalkTest, NoFloorIsLimitedNotLost) {
  UniqueFd here(::open((dir_ / "scratch/upper").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 800; ++i) {
    ASSERT_EQ(::mkdirat(here.get(), "d", 0755), 0);
    here = UniqueFd(::openat(here.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  EXPECT_GT(walk().size(), 400U);
  EXPECT_EQ(end_, WalkEnd::limited);
}

TEST_F(ChangeWalkTest, LinksAreComparedAndNeverFollowed) {
  fs::create_directory_symlink("target", dir_ / "lower0/same");
  fs::create_directory_symlink("target", dir_ / "scratch/upper/same");
  fs::create_directory_symlink("target", dir_ / "lower0/other");
  fs::create_directory_symlink("else", dir_ / "scratch/upper/other");
  fs::create_directory_symlink("/", dir_ / "scratch/upper/root");
  EXPECT_THAT(walk(), UnorderedElementsAre("* /other", "+ /root"));
}

TEST(Stamps, TellWhatChanged) {
  struct stat file {};
  file.st_mode = S_IFREG | 0644;
  file.st_ino = 5;
  std::uint64_t before = stamp_of(file);
  auto differs = [&](auto change) {
    struct stat other = file;
    change(other);
    return stamp_of(other) != before;
  };
  EXPECT_FALSE(differs([](struct stat&) {}));
  EXPECT_TRUE(differs([](struct stat& other) { other.st_ino = 6; }));
  EXPECT_TRUE(differs([](struct stat& other) { other.st_size = 1; }));
  EXPECT_TRUE(differs([](struct stat& other) { other.st_mode = S_IFREG | 0600; }));
  EXPECT_TRUE(differs([](struct stat& other) { other.st_ctim.tv_sec = 1; }));
  EXPECT_TRUE(differs([](struct stat& other) { other.st_ctim.tv_nsec = 1; }));
}

}  // namespace
}  // namespace asr
