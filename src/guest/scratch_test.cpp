#include "guest/scratch.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/id.hpp"
#include "guest/changes.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// A sandbox's folders as its launch leaves them, with a root layer and one at /workspace.
class ScratchTest : public testing::Test {
 protected:
  ScratchTest() : dir_(fs::temp_directory_path() / ("asr-scratch-" + random_name(10))) {
    for (const char* name : {"upper", "upper_1", "workspace", "home", "tmp", "lower0", "lower1"})
      fs::create_directories(dir_ / name);
    plan_.rootless = true;  // Whoever runs the tests owns everything.
    plan_.layers[0].target = "";
    plan_.layer_count = 1;
    outcome_.lowers.fill(-1);
    outcome_.scratch = open(".");
    outcome_.lowers[0] = open("lower0");
  }
  ~ScratchTest() override {
    for (int fd : fds_) ::close(fd);
    EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native()));
  }

  int open(const std::string& name) {
    fds_.push_back(::open((dir_ / name).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return fds_.back();
  }
  void add_workspace_layer() {
    plan_.layers[plan_.layer_count] = {"", "workspace", true};
    outcome_.lowers[plan_.layer_count++] = open("lower1");
  }
  void add_volume(const char* target) { plan_.volume_targets[plan_.volume_count++] = target; }
  std::vector<std::string> trees() const {
    std::vector<std::string> paths;
    for (const Scratch::Tree& tree : scratch_of(plan_, outcome_).trees) paths.push_back(tree.path);
    return paths;
  }
  std::vector<std::string> made() const {
    std::vector<std::string> paths;
    for (const Scratch::Made& one : scratch_of(plan_, outcome_).made) paths.push_back(one.path);
    return paths;
  }

  fs::path dir_;
  LaunchPlan plan_;
  LaunchOutcome outcome_;
  std::vector<int> fds_;
};

TEST_F(ScratchTest, ReadOnlyRootsHaveThreeTrees) {
  plan_.read_only = true;
  EXPECT_THAT(trees(), ElementsAre("/tmp", "/workspace", "/home/user"));
}

TEST_F(ScratchTest, WhatAVolumeHidesIsNoTree) {
  plan_.read_only = true;
  add_volume("/workspace");
  EXPECT_THAT(trees(), ElementsAre("/tmp", "/home/user"));
  add_volume("/home");
  EXPECT_THAT(trees(), ElementsAre("/tmp"));
}

TEST_F(ScratchTest, ALayerThatAVolumeHidesIsNoTreeEither) {
  add_workspace_layer();
  EXPECT_THAT(trees(), ElementsAre("", "/workspace"));
  add_volume("/workspace");
  EXPECT_THAT(trees(), ElementsAre(""));
}

TEST_F(ScratchTest, AVolumeInATreeLeavesIt) {
  plan_.read_only = true;
  add_volume("/workspace/data");
  EXPECT_THAT(trees(), ElementsAre("/tmp", "/workspace", "/home/user"));
  EXPECT_TRUE(scratch_of(plan_, outcome_).covers("/workspace/data"));
}

TEST_F(ScratchTest, FoldersOnTheWayToAVolumeAreMadeWhereTheyAreMissing) {
  add_workspace_layer();
  fs::create_directories(dir_ / "lower1/data/old");
  fs::create_directories(dir_ / "lower0/mnt/here");
  add_volume("/workspace/data/old/volume");
  add_volume("/workspace/new/volume");
  add_volume("/mnt/here/volume");
  auto paths = made();
  EXPECT_THAT(paths, Not(Contains("/workspace/data")));
  EXPECT_THAT(paths, Not(Contains("/workspace/data/old")));
  EXPECT_THAT(paths, Contains("/workspace/new"));
  // In the root the launch makes them all.
  EXPECT_THAT(paths, Contains("/mnt"));
  EXPECT_THAT(paths, Contains("/mnt/here"));
}

TEST_F(ScratchTest, FoldersOfALayerAreNotMissing) {
  class Collector final : public ChangeWalk::Visitor {
   public:
    bool visit(const Written& written) override {
      if (written.verdict == Written::Verdict::removed) removed.emplace_back(written.path);
      return true;
    }
    std::vector<std::string> removed;
  } collector;
  add_workspace_layer();
  fs::create_directories(dir_ / "lower1/data/old");
  add_volume("/workspace/data/old");
  Scratch scratch = scratch_of(plan_, outcome_);
  auto end = ChangeWalk(scratch, {}).run(collector);
  ASSERT_TRUE(end) << end.error().what;
  EXPECT_THAT(collector.removed, Not(Contains("/workspace/data")));
}

}  // namespace
}  // namespace asr
