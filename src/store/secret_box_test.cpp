#include "store/secret_box.hpp"

#include <gtest/gtest.h>

#include <set>

namespace asr {
namespace {

TEST(SecretBox, WhatIsSealedOpens) {
  SecretBox box(random_secret_key());
  for (const std::string& plain :
       {std::string(), std::string("a"), std::string(100'000, 'x'), std::string("\0\xff\n", 3)})
    for (const char* context : {"", "session/1"}) {
      std::string sealed = box.seal(plain, context);
      EXPECT_EQ(sealed.size(), plain.size() + 12 + 16);
      auto opened = box.open(sealed, context);
      ASSERT_TRUE(opened) << opened.error().what;
      EXPECT_EQ(*opened, plain);
    }
}

TEST(SecretBox, NoBitCanBeChanged) {
  SecretBox box(random_secret_key());
  std::string sealed = box.seal("the secret", "row 1");
  for (std::size_t i = 0; i < sealed.size(); ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string changed = sealed;
      changed[i] = static_cast<char>(static_cast<unsigned char>(changed[i]) ^ (1U << bit));
      EXPECT_FALSE(box.open(changed, "row 1"));
    }
  for (std::size_t size = 0; size < sealed.size(); ++size)
    EXPECT_FALSE(box.open(std::string_view(sealed).substr(0, size), "row 1"));
  EXPECT_FALSE(box.open(sealed + "x", "row 1"));
}

TEST(SecretBox, ASealedValueOpensOnlyWhereItBelongs) {
  SecretBox box(random_secret_key());
  SecretBox other(random_secret_key());
  std::string sealed = box.seal("the secret", "row 1");
  auto moved = box.open(sealed, "row 2");
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, Errc::internal);
  EXPECT_FALSE(moved.error().hint.empty());
  EXPECT_FALSE(other.open(sealed, "row 1"));
}

TEST(SecretBox, NothingIsSealedTheSameWayTwice) {
  SecretBox box(random_secret_key());
  std::set<std::string> sealed;
  for (int i = 0; i < 1000; ++i) sealed.insert(box.seal("same", "same").substr(0, 12));
  EXPECT_EQ(sealed.size(), 1000U);
}

// From FIPS 180-2.
TEST(Digest, MatchesTheStandard) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, EqualityIsEquality) {
  EXPECT_TRUE(constant_time_equal("", ""));
  EXPECT_TRUE(constant_time_equal("abc", "abc"));
  EXPECT_FALSE(constant_time_equal("abc", "abd"));
  EXPECT_FALSE(constant_time_equal("abc", "abcd"));
  EXPECT_FALSE(constant_time_equal("", "a"));
}

TEST(SecretBox, MacBelongsToKeyAndText) {
  SecretKey key{};
  SecretBox box(key);
  SecretBox same(key);
  SecretBox other(random_secret_key());
  EXPECT_EQ(box.mac("text").size(), 32U);
  EXPECT_EQ(box.mac("text"), same.mac("text"));
  EXPECT_NE(box.mac("text"), box.mac("texT"));
  EXPECT_NE(box.mac("text"), other.mac("text"));
  EXPECT_NE(box.mac(""), other.mac(""));
}

}  // namespace
}  // namespace asr
