#include "engine/environment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST(Accounts, WhatEverySandboxHasIsAdded) {
  std::string passwd = with_accounts("");
  for (const char* line : {"root:x:0:0:", "nobody:x:65534:", "user:x:1000:1000:"})
    EXPECT_EQ(count(passwd, line), 1U);
  std::string group = with_groups("");
  for (const char* line : {"root:x:0:", "tty:x:5:", "nogroup:x:65534:", "user:x:1000:"})
    EXPECT_EQ(count(group, line), 1U);
  EXPECT_TRUE(passwd.ends_with('\n'));
}

TEST(Accounts, WhatAnImageHasIsKept) {
  std::string image = "root:x:0:0:admin:/home/root:/bin/ash\nuser:x:5000:5000::/srv:/bin/ash";
  std::string passwd = with_accounts(image);
  EXPECT_TRUE(passwd.starts_with(image + "\n")) << passwd;
  EXPECT_EQ(count(passwd, "user:"), 1U);
  EXPECT_EQ(count(passwd, "root:x:"), 1U);
  EXPECT_EQ(with_accounts(passwd), passwd);
  EXPECT_EQ(with_groups(with_groups("x:x:7:")), with_groups("x:x:7:"));
}

TEST(Accounts, SimilarNamesAreOthers) {
  std::string passwd = with_accounts("superuser:x:1:1::/:\nuser2:x:2:2::/:\n#user:x:3:3::/:\n");
  EXPECT_EQ(count(passwd, "\nuser:x:1000:1000:"), 1U);
}

TEST(Accounts, LongAndBrokenTextsAreOnlyCopied) {
  std::string text = std::string(1 << 20, 'a') + "\n::::\n" + std::string(1 << 16, ':');
  EXPECT_TRUE(with_accounts(text).starts_with(text));
}

class Environments : public testing::Test {
 protected:
  Environments() : dir_(fs::temp_directory_path() / ("asr-env-" + random_name(10))) {
    fs::create_directories(dir_);
  }
  ~Environments() override { EXPECT_TRUE(remove_tree(AT_FDCWD, dir_.native())); }
  fs::path dir_;
};

TEST_F(Environments, TheHostsIsMadeOnce) {
  auto first = host_layers(dir_ / "cache", InstanceId("i-test"));
  ASSERT_TRUE(first) << first.error().what;
  auto second = host_layers(dir_ / "cache", InstanceId("i-test"));
  ASSERT_TRUE(second);
  EXPECT_EQ(first->front().source, second->front().source);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "cache"), fs::directory_iterator()), 1);
  EXPECT_EQ(first->front().target, "");
  EXPECT_EQ(first->at(1).source, "/usr");
}

TEST_F(Environments, TheHostsKeepsItsSecretsAndAccounts) {
  auto layers = host_layers(dir_ / "cache", InstanceId("i-test"));
  ASSERT_TRUE(layers);
  fs::path root = layers->front().source;
  EXPECT_EQ(count(text_of(root / "etc/passwd"), "user:x:1000:1000:"), 1U);
  for (const char* name :
       {"etc/shadow", "etc/gshadow", "etc/ssh", "etc/ssl/private", "etc/machine-id", "etc/sudoers"})
    EXPECT_FALSE(fs::exists(fs::symlink_status(root / name))) << name;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    struct stat info {};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_TRUE(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) || S_ISLNK(info.st_mode))
        << entry.path();
    EXPECT_EQ(info.st_mode & (S_ISUID | S_ISGID), 0U) << entry.path();
  }
}

TEST_F(Environments, AFolderMustLookLikeARoot) {
  EXPECT_EQ(folder_layers(dir_ / "missing", dir_).error().code, Errc::not_found);
  EXPECT_EQ(folder_layers("/", dir_).error().code, Errc::denied);
  EXPECT_EQ(folder_layers("/usr/..", dir_).error().code, Errc::denied);
  fs::create_directories(dir_ / "empty");
  EXPECT_EQ(folder_layers(dir_ / "empty", dir_).error().code, Errc::invalid);
}

// An image is anybody's: its files are data, and its links lead nowhere out of it.
TEST_F(Environments, AHostileImageGetsNothingOfOurs) {
  fs::path image = dir_ / "image";
  fs::create_directories(image / "bin");
  fs::create_directories(image / "etc");
  std::ofstream(dir_ / "secret") << "secret:x:1:1::/:\n";
  fs::create_symlink(dir_ / "secret", image / "etc/passwd");
  ASSERT_EQ(::mkfifo((image / "etc/group").c_str(), 0644), 0);
  auto layers = folder_layers(image, dir_);
  ASSERT_TRUE(layers) << layers.error().what;
  EXPECT_EQ(count(text_of(fs::path(layers->front().source) / "etc/passwd"), "secret"), 0U);
  EXPECT_EQ(text_of(fs::path(layers->front().source) / "etc/group"), with_groups(""));
  EXPECT_EQ(layers->at(1).source, fs::canonical(image).native());
}

TEST_F(Environments, ATarballsPlaceChangesWithIt) {
  fs::path tar = dir_ / "root.tar";
  EXPECT_EQ(find_unpacked(tar, dir_).error().code, Errc::not_found);
  EXPECT_EQ(find_unpacked(dir_, dir_).error().code, Errc::not_found);
  std::ofstream(tar) << "one";
  auto first = find_unpacked(tar, dir_);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->ready);
  EXPECT_EQ(find_unpacked(tar, dir_)->root, first->root);
  fs::create_directories(first->root);
  EXPECT_TRUE(find_unpacked(tar, dir_)->ready);
  std::ofstream(tar) << "another";
  EXPECT_NE(find_unpacked(tar, dir_)->root, first->root);
}

}  // namespace
}  // namespace asr
