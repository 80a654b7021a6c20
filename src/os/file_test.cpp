#include "os/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/id.hpp"
#include "base/scope_exit.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// In memory where there is such a place: a disk would be measured, not the code.
fs::path memory_dir() {
  return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

class File : public testing::Test {
 protected:
  File() : path_(memory_dir() / ("asr-file-" + random_name(10))) {
    fs::create_directories(path_);
    dir_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~File() override { EXPECT_TRUE(remove_tree(AT_FDCWD, path_.native())); }

  void put(const fs::path& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  Result<std::string> text_of(int dir, const std::string& name, Resolve resolve) const {
    UniqueFd fd = TRY(open_resolved(dir, name, O_RDONLY, resolve));
    return read_small_file(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd.get()));
  }

  fs::path path_;
  UniqueFd dir_;
};

TEST_F(File, SmallFilesLoseOnlyTheirLastNewlines) {
  put("value", "one\ntwo\n");
  put("empty", "");
  EXPECT_EQ(*read_small_file(dir_.get(), "value"), "one\ntwo");
  EXPECT_EQ(*read_small_file(dir_.get(), "empty"), "");
  EXPECT_EQ(read_small_file(dir_.get(), "nothing").error().code, Errc::not_found);
}

TEST_F(File, BytesAreReadAsTheyAre) {
  std::string bytes("\0\xff\n\n", 4);
  put("bytes", bytes);
  auto read = read_bytes(dir_.get(), "bytes", 4);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, bytes);
  EXPECT_FALSE(read_bytes(dir_.get(), "bytes", 3));
}

TEST_F(File, WhatIsNotSmallIsRefusedBeforeAllOfItIsRead) {
  put("exact", std::string(100, 'x'));
  EXPECT_TRUE(read_small_file(dir_.get(), "exact", 100));
  EXPECT_EQ(read_small_file(dir_.get(), "exact", 99).error().code, Errc::exhausted);
  EXPECT_EQ(read_small_file(AT_FDCWD, "/dev/zero", 4096).error().code, Errc::exhausted);
}

TEST_F(File, NumbersAreNumbers) {
  put("number", "18446744073709551615\n");
  put("word", "max\n");
  put("large", "18446744073709551616\n");
  EXPECT_EQ(*read_number(dir_.get(), "number"), ~0ULL);
  EXPECT_EQ(read_number(dir_.get(), "word").error().code, Errc::internal);
  EXPECT_EQ(read_number(dir_.get(), "large").error().code, Errc::internal);
}

TEST_F(File, AKeyIsFoundWholeOrNotAtAll) {
  put("stat", "oom_kill_disable 0\nunder_oom 1\noom_kill 7\nlast");
  EXPECT_EQ(*read_keyed(dir_.get(), "stat", "oom_kill"), 7U);
  EXPECT_EQ(*read_keyed(dir_.get(), "stat", "under_oom"), 1U);
  EXPECT_EQ(read_keyed(dir_.get(), "stat", "oom").error().code, Errc::not_found);
  EXPECT_EQ(read_keyed(dir_.get(), "stat", "last").error().code, Errc::not_found);
}

TEST_F(File, WritingAValueMakesNoFile) {
  put("there", "");
  EXPECT_TRUE(write_value(dir_.get(), "there", "12"));
  EXPECT_EQ(*read_number(dir_.get(), "there"), 12U);
  EXPECT_EQ(write_value(dir_.get(), "elsewhere", "12").error().code, Errc::not_found);
  EXPECT_EQ(write_value(AT_FDCWD, "/dev/full", "1").error().code, Errc::exhausted);
}

// ---- resolution
// ----------------------------------------------------------------------------------

class Resolution : public File {
 protected:
  Resolution() {
    put("outside", "secret");
    put("root/inside", "ours");
    put("root/folder/file", "ours");
    root_ = *open_dir(dir_.get(), "root");
  }
  void link(const std::string& target, const std::string& name) const {
    ASSERT_EQ(::symlinkat(target.c_str(), root_.get(), name.c_str()), 0);
  }
  UniqueFd root_;
};

TEST_F(Resolution, InRootAbsoluteNamesAndDotsStayInside) {
  link("/inside", "absolute");
  link("../../../../inside", "dots");
  link((path_ / "outside").native(), "leaving");
  for (const char* name :
       {"inside", "/inside", "/../../inside", "folder/../inside", "absolute", "dots"})
    EXPECT_EQ(text_of(root_.get(), name, Resolve::in_root).value_or("nothing"), "ours") << name;
  EXPECT_EQ(text_of(root_.get(), "leaving", Resolve::in_root).error().code, Errc::not_found);
  EXPECT_EQ(text_of(root_.get(), "../outside", Resolve::in_root).error().code, Errc::not_found);
}

TEST_F(Resolution, BeneathLeavingIsAnError) {
  link("../outside", "leaving");
  link("folder/file", "staying");
  EXPECT_EQ(*text_of(root_.get(), "staying", Resolve::beneath), "ours");
  EXPECT_EQ(*text_of(root_.get(), "folder/../inside", Resolve::beneath), "ours");
  for (const char* name :
       {"leaving", "../outside", "/inside", "folder/../../outside", "folder/../../root/inside"})
    EXPECT_FALSE(text_of(root_.get(), name, Resolve::beneath)) << name;
}

TEST_F(Resolution, NoLinksMeansNoneOnTheWayEither) {
  link("inside", "link");
  link("folder", "linked_folder");
  EXPECT_EQ(*text_of(root_.get(), "folder/file", Resolve::no_symlinks), "ours");
  EXPECT_EQ(text_of(root_.get(), "link", Resolve::no_symlinks).error().code, Errc::invalid);
  EXPECT_EQ(text_of(root_.get(), "linked_folder/file", Resolve::no_symlinks).error().code,
            Errc::invalid);
}

TEST_F(Resolution, LinksInACircleEnd) {
  link("b", "a");
  link("a", "b");
  EXPECT_EQ(text_of(root_.get(), "a", Resolve::in_root).error().code, Errc::invalid);
}

// A descriptor of ours behind /proc/self/fd/N or /proc/self/root would lead anywhere.
TEST_F(Resolution, MagicLinksAreNotFollowed) {
  UniqueFd slash(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  UniqueFd outside(::open((path_ / "outside").c_str(), O_RDONLY | O_CLOEXEC));
  std::string name = "proc/self/fd/" + std::to_string(outside.get());
  EXPECT_EQ(text_of(slash.get(), name, Resolve::in_root).error().code, Errc::invalid);
  EXPECT_EQ(text_of(slash.get(), "proc/self/root/etc/passwd", Resolve::in_root).error().code,
            Errc::invalid);
  EXPECT_EQ(text_of(slash.get(), "proc/self/cwd/etc/passwd", Resolve::beneath).error().code,
            Errc::invalid);
}

int exchange(int from_dir, const char* from, int to_dir, const char* to) {
  return static_cast<int>(::syscall(SYS_renameat2, from_dir, from, to_dir, to, RENAME_EXCHANGE));
}

// Swaps a folder with a link that leads out, and moves the folder we stand in out of the root, as
// fast as it can.
TEST_F(Resolution, ASwappingAttackerNeverGetsUsOut) {
  put("root/a/b/file", "ours");
  put("file", "secret");
  put("elsewhere/file", "secret");
  link((path_ / "elsewhere").native(), "trap");
  link("../..", "a/up");
  std::atomic<bool> stop = false;
  std::thread attacker([&] {
    while (!stop) {
      exchange(root_.get(), "a/b", root_.get(), "trap");
      ::renameat(root_.get(), "a", dir_.get(), "taken");
      ::renameat(dir_.get(), "taken", root_.get(), "a");
      exchange(root_.get(), "a/b", root_.get(), "trap");
    }
  });
  ScopeExit join([&] {
    stop = true;
    attacker.join();
  });
  int opened = 0;
  auto until = std::chrono::steady_clock::now() + 1500ms;
  while (std::chrono::steady_clock::now() < until) {
    for (Resolve resolve : {Resolve::in_root, Resolve::beneath, Resolve::no_symlinks})
      for (const char* name : {"a/b/file", "a/b/../../file", "a/b/../../../file", "a/up/file",
                               "a/up/../file", "trap/file"}) {
        auto text = text_of(root_.get(), name, resolve);
        if (!text) continue;
        ++opened;
        ASSERT_EQ(*text, "ours") << name;
      }
  }
  EXPECT_GT(opened, 0);  // Otherwise this proved nothing.
}

// ---- removal
// -------------------------------------------------------------------------------------

TEST_F(File, RemovingFollowsNoLink) {
  put("kept/file", "x");
  put("tree/file", "x");
  fs::create_directory_symlink(path_ / "kept", path_ / "tree/link");
  fs::create_directory_symlink(path_ / "kept", path_ / "top");
  EXPECT_TRUE(remove_tree(dir_.get(), "tree"));
  EXPECT_TRUE(remove_tree(dir_.get(), "top"));
  EXPECT_TRUE(remove_tree(dir_.get(), "top")) << "what is not there is removed already";
  EXPECT_TRUE(fs::exists(path_ / "kept/file"));
  EXPECT_FALSE(fs::exists(path_ / "tree"));
}

TEST_F(File, RemovingTakesEveryKindOfFile) {
  put("tree/a/b/c/file", "x");
  put("tree/a/d/file", "x");
  put("tree/ space\n", "x");
  ASSERT_EQ(::mkfifo((path_ / "tree/a/fifo").c_str(), 0600), 0);
  fs::create_symlink("nowhere", path_ / "tree/a/broken");
  EXPECT_TRUE(remove_tree(dir_.get(), "tree"));
  EXPECT_FALSE(fs::exists(path_ / "tree"));
}

void make_deep(int dir, const char* top, int depth) {
  ASSERT_EQ(::mkdirat(dir, top, 0755), 0);
  UniqueFd here(::openat(dir, top, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(here.get(), "d", 0755), 0);
    here = UniqueFd(::openat(here.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(here);
  }
}

// Deeper than PATH_MAX, deeper than any number of descriptors.
TEST_F(File, DepthCostsNoDescriptors) {
  make_deep(dir_.get(), "deep", 20'000);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few{32, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  auto removed = remove_tree(dir_.get(), "deep");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(removed) << removed.error().what;
}

// Somebody moves the folder that is being emptied: what is beside it now is not ours to empty.
TEST_F(File, RemovingStaysWhereItBegan) {
  constexpr int kFiles = 20'000;
  constexpr int kWatched = 100;  // of these, to see that it has begun
  put("kept/file", "x");
  put("kept/folder/file", "x");
  auto name = [](int i) { return "tree/a/b/" + std::to_string(i); };
  for (int i = 0; i < kFiles; ++i) put(name(i), "");
  bool moved = false;
  std::thread attacker([&] {
    bool begun = false;
    for (int i = 0; !begun; i = (i + 1) % kWatched)
      begun = ::faccessat(dir_.get(), name(i * (kFiles / kWatched)).c_str(), F_OK, 0) != 0;
    moved = ::renameat(dir_.get(), "tree/a/b", dir_.get(), "kept/b") == 0;
  });
  auto removed = remove_tree(dir_.get(), "tree");
  attacker.join();
  EXPECT_TRUE(moved) << "it was too late, and this proves nothing";
  EXPECT_EQ(removed ? Errc::internal : removed.error().code, Errc::conflict);
  EXPECT_TRUE(fs::exists(path_ / "kept/file"));
  EXPECT_TRUE(fs::exists(path_ / "kept/folder/file"));
}

// Every folder is read once, not once for each of its sub-folders.
TEST_F(File, WidthCostsWhatItHolds) {
  for (int i = 0; i < 3000; ++i) put("wide/" + std::to_string(i) + "/file", "x");
  auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(remove_tree(dir_.get(), "wide"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 3s);
}

}  // namespace
}  // namespace asr
