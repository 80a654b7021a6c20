#include "engine/instance.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "engine/environment.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Instances : public testing::Test {
 protected:
  Instances() : runtime_(fs::temp_directory_path() / ("asr-run-" + random_name(10))) {}
  ~Instances() override { EXPECT_TRUE(remove_tree(AT_FDCWD, runtime_.native())); }

  // A folder as an instance has it. With a lock file it is somebody's who died.
  fs::path folder(const std::string& name, bool lock) const {
    fs::create_directories(runtime_ / name / "stage-x");
    if (lock) std::ofstream(runtime_ / name / "lock");
    return runtime_ / name;
  }
  static void make_old(const fs::path& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - 2min);
  }

  fs::path runtime_;
  fs::path cache_ = runtime_ / "cache";
};

TEST_F(Instances, HaveAFolderOfTheirOwnWhileTheyLive) {
  fs::path dir;
  {
    auto instance = Instance::open(runtime_);
    ASSERT_TRUE(instance);
    dir = instance->dir();
    EXPECT_TRUE(fs::is_regular_file(dir / "lock"));
    struct stat info {};
    ASSERT_EQ(::stat(dir.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
    std::ofstream(dir / "left") << "x";
  }
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_TRUE(fs::is_empty(runtime_));
}

TEST_F(Instances, RecoveryLeavesTheLivingAlone) {
  auto one = Instance::open(runtime_);
  auto two = Instance::open(runtime_);
  ASSERT_TRUE(one && two);
  RecoveryReport report = recover(runtime_, cache_);
  EXPECT_EQ(report.instances, 0U);
  EXPECT_TRUE(fs::exists(one->dir()) && fs::exists(two->dir()));
}

TEST_F(Instances, AFixedNameIsForOneAtATime) {
  auto one = Instance::become(runtime_, "node");
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->dir().filename().native().starts_with("i-node_"));
  EXPECT_FALSE(one->needs_lock());
  auto two = Instance::become(runtime_, "node");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, Errc::conflict);
  EXPECT_TRUE(Instance::become(runtime_, "other"));
  for (const char* name : {"", "A", "a-b", "../x", "a.b"})
    EXPECT_EQ(Instance::become(runtime_, name).error().code, Errc::invalid) << name;
}

TEST_F(Instances, TheSameNameElsewhereIsAnother) {
  auto here = Instance::become(runtime_, "node");
  auto there = Instance::become(runtime_ / "elsewhere", "node");
  ASSERT_TRUE(here && there);
  EXPECT_NE(here->id(), there->id());
}

TEST_F(Instances, TheNameOfADeadOneIsFree) {
  fs::path dead;
  {
    auto instance = Instance::become(runtime_, "node");
    ASSERT_TRUE(instance);
    dead = instance->dir();
    fs::create_directory(dead / "stage-x");
    instance->leave();
  }
  auto next = Instance::become(runtime_, "node");
  ASSERT_TRUE(next) << next.error().what;
  EXPECT_FALSE(next->needs_lock());
  EXPECT_FALSE(fs::exists(dead / "stage-x")) << "nothing of the dead one is left";
}

// As after a daemon's death, with its keeper alive.
TEST_F(Instances, OneThatSomebodyHoldsGoesOn) {
  UniqueFd keeper;
  {
    auto dead = Instance::become(runtime_, "node");
    ASSERT_TRUE(dead);
    keeper = dead->copy_lock();
    std::ofstream(dead->dir() / "left") << "x";
    dead->leave();
  }
  EXPECT_EQ(recover(runtime_, cache_).instances, 0U);
  auto next = Instance::become(runtime_, "node");
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->needs_lock());
  EXPECT_TRUE(fs::exists(next->dir() / "left"));
  EXPECT_EQ(Instance::become(runtime_, "node").error().code, Errc::conflict);
  next->hold(std::move(keeper));
  fs::path dir = next->dir();
  { Instance ended = *std::move(next); }
  EXPECT_FALSE(fs::exists(dir));
}

TEST_F(Instances, RecoveryRemovesTheDead) {
  int child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto instance = Instance::open(runtime_);
    if (instance) std::ofstream(instance->dir() / "left") << "x";
    ::_exit(instance ? 0 : 1);  // No destructor runs, as after kill -9.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  auto living = Instance::open(runtime_);
  RecoveryReport report = recover(runtime_, cache_);
  EXPECT_EQ(report.instances, 1U);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_TRUE(fs::exists(living->dir()));
  EXPECT_EQ(std::distance(fs::directory_iterator(runtime_), fs::directory_iterator()), 1);
}

// Between its mkdir and its lock an instance looks dead. It gets a minute.
TEST_F(Instances, AHalfMadeOneIsRemovedOnlyWhenOld) {
  fs::path young = folder("new-i-young", false);
  fs::path old = folder("new-i-old", false);
  fs::path locked = folder("new-i-locked", true);
  make_old(old);
  UniqueFd lock(::open((locked / "lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(recover(runtime_, cache_).instances, 1U);
  EXPECT_TRUE(fs::exists(young));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(locked));
  lock.reset();
  EXPECT_EQ(recover(runtime_, cache_).instances, 1U);
  EXPECT_FALSE(fs::exists(locked));
}

// Killed while it removed its own folder: the lock went first. A whole one always has a lock, so
// this is no one's.
TEST_F(Instances, AHalfRemovedOneIsRemoved) {
  fs::path half = folder("i-half", false);
  make_old(half);
  EXPECT_EQ(recover(runtime_, cache_).instances, 1U);
  EXPECT_FALSE(fs::exists(half));
}

TEST_F(Instances, RecoveryTouchesNothingElse) {
  fs::path ids = folder("ids", true);
  fs::path other = folder("other", true);
  fs::path elsewhere = folder("elsewhere", true);
  fs::create_directory_symlink(elsewhere, runtime_ / "i-link");
  (void)recover(runtime_, cache_);
  EXPECT_TRUE(fs::exists(ids / "stage-x"));
  EXPECT_TRUE(fs::exists(other / "stage-x"));
  EXPECT_TRUE(fs::exists(elsewhere / "stage-x"));
  EXPECT_EQ(recover(runtime_ / "missing", cache_).instances, 0U);
}

TEST_F(Instances, ARuntimeFolderOfOthersIsRefused) {
  fs::create_directories(runtime_ / "open");
  ASSERT_EQ(::chmod((runtime_ / "open").c_str(), 0777), 0);
  EXPECT_EQ(Instance::open(runtime_ / "open").error().code, Errc::denied);
  fs::create_directories(runtime_ / "target");
  fs::create_directory_symlink(runtime_ / "target", runtime_ / "link");
  EXPECT_EQ(Instance::open(runtime_ / "link").error().code, Errc::denied);
  if (::geteuid() != 0) return;
  fs::create_directories(runtime_ / "theirs");
  ASSERT_EQ(::chown((runtime_ / "theirs").c_str(), 12345, 12345), 0);
  EXPECT_EQ(Instance::open(runtime_ / "theirs").error().code, Errc::denied);
}

TEST_F(Instances, RecoveryDiscardsWhatADeadOneWasUnpacking) {
  folder("i-dead", true);
  auto living = Instance::open(runtime_);
  ASSERT_TRUE(living);
  fs::path of_dead = cache_ / half_made(InstanceId("i-dead"));
  fs::path of_living = cache_ / half_made(living->id());
  for (const fs::path& path : {of_dead, of_living, cache_ / "host-0"})
    fs::create_directories(path / "etc");
  EXPECT_EQ(recover(runtime_, cache_).instances, 1U);
  EXPECT_FALSE(fs::exists(of_dead));
  EXPECT_TRUE(fs::exists(of_living));
  EXPECT_TRUE(fs::exists(cache_ / "host-0"));
}

}  // namespace
}  // namespace asr
