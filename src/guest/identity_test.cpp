#include "guest/identity.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using Ids = std::vector<std::uint32_t>;

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
    "user:x:1000:1001:A user,,,:/home/user:/bin/zsh\n"
    "last:x:7:8::/last:/bin/sh";
constexpr std::string_view kGroup =
    "root:x:0:\nstaff:x:50:user,www-data\nusers:x:100:someuser,user\nuser:x:1001:\n";

TEST(FindUser, ReadsAnAccount) {
  auto user = find_user("user", kPasswd, kGroup);
  ASSERT_TRUE(user);
  EXPECT_EQ(user->uid, 1000U);
  EXPECT_EQ(user->gid, 1001U);
  EXPECT_EQ(user->home, "/home/user");
  EXPECT_EQ(user->shell, "/bin/zsh");
  EXPECT_EQ(user->groups, (Ids{50, 100}));
  EXPECT_EQ(find_user("last", kPasswd, kGroup)->uid, 7U) << "a last line needs no newline";
}

TEST(FindUser, ANumberNeedsNoAccount) {
  EXPECT_EQ(find_user("33", kPasswd, kGroup)->name, "www-data");
  auto stranger = find_user("4711", kPasswd, kGroup);
  ASSERT_TRUE(stranger);
  EXPECT_EQ(stranger->uid, 4711U);
  EXPECT_EQ(stranger->gid, 4711U);
  EXPECT_EQ(stranger->home, "/");
}

TEST(FindUser, TheTwoUsualAccountsAreAlwaysThere) {
  for (std::string_view text : {"", "\n\n\n", ":::::::", "user", "user:x:abc:1000::/:"}) {
    EXPECT_EQ(find_user("user", text, text)->uid, 1000U) << text;
    EXPECT_EQ(find_user("root", text, text)->uid, 0U) << text;
    EXPECT_FALSE(find_user("stranger", text, text)) << text;
  }
}

// 65535 is pid 1's, and what is above belongs to other sandboxes or to the host.
TEST(FindUser, IdsOutOfTheSandboxAreRefused) {
  EXPECT_TRUE(find_user("65534", "", ""));
  for (const char* wanted : {"65535", "65536", "4294967295"})
    EXPECT_FALSE(find_user(wanted, "", "")) << wanted;
  EXPECT_FALSE(find_user("x", "x:x:65535:0::/:", ""));
  EXPECT_FALSE(find_user("x", "x:x:0:65535::/:", ""));
  EXPECT_EQ(find_user("x", "x:x:1:1::/:", "a:x:65535:x\nb:x:4294967295:x\nc:x:5:x")->groups,
            Ids{5});
}

TEST(FindUser, WhatIsNoNumberIsNoId) {
  for (const char* wanted :
       {"-1", "+1", "0x0", "1 ", " 1", "1.0", "4294967296", "99999999999999999999", ""})
    EXPECT_FALSE(find_user(wanted, kPasswd, kGroup)) << wanted;
  for (const char* id : {"-1", "4294967296", "0x1", "", " 5", "5 "}) {
    EXPECT_FALSE(find_user("x", std::string("x:x:") + id + ":1::/:", "")) << id;
    EXPECT_FALSE(find_user("x", std::string("x:x:1:") + id + "::/:", "")) << id;
    EXPECT_TRUE(find_user("x", "x:x:1:1::/:", std::string("g:x:") + id + ":x")->groups.empty())
        << id;
  }
}

TEST(FindUser, ANameIsAWholeField) {
  EXPECT_FALSE(find_user("roo", kPasswd, kGroup));
  EXPECT_FALSE(find_user("root:x", kPasswd, kGroup));
  EXPECT_FALSE(find_user("user:x:1000", kPasswd, kGroup));
  EXPECT_FALSE(find_user("user\nroot", kPasswd, kGroup));
  EXPECT_FALSE(find_user(std::string_view("root\0", 5), kPasswd, kGroup));
}

TEST(FindUser, ShortLinesAreLeftOut) {
  EXPECT_FALSE(find_user("x", "x\nx:\nx:x:1:1\nx:x:1:1:\n", ""));
  EXPECT_TRUE(find_user("x", "x:x:1:1::/\n", "")) << "a missing shell is no reason";
  EXPECT_TRUE(find_user("x", "x:x:1:1::/:", "x\ng:x:1\ng:x\n::::\n")->groups.empty());
}

TEST(FindUser, AHomeThatIsNoPathIsTheRoot) {
  for (const char* home : {"", "relative", "../up", "~"})
    EXPECT_EQ(find_user("x", std::string("x:x:1:1::") + home + ":/bin/sh", "")->home, "/") << home;
}

TEST(FindUser, GroupsAreBounded) {
  std::string group;
  for (int i = 0; i < 10'000; ++i) group += "g:x:" + std::to_string(i) + ":x\n";
  EXPECT_EQ(find_user("x", "x:x:1:1::/:", group)->groups.size(), 64U);
}

TEST(FindUser, LongLinesAreOnlyLong) {
  std::string long_name(1 << 20, 'a');
  std::string colons(1 << 20, ':');
  std::string commas(1 << 20, ',');
  std::string passwd = long_name + "\n" + colons + "\n" + long_name + ":x:5:5::/:\nx:x:6:6::/:\n";
  EXPECT_EQ(find_user("x", passwd, "g:x:9:" + commas + "x\n" + colons)->groups, Ids{9});
  EXPECT_EQ(find_user(long_name, passwd, "")->uid, 5U);
}

}  // namespace
}  // namespace asr
