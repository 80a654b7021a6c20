#include "net/address_policy.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Addresses, OnlyPublicOnesArePublic) {
  for (const char* good : {"8.8.8.8", "1.1.1.1", "2606:4700::1111", "2002:0808:0808::1",
                           "::ffff:8.8.8.8", "172.32.0.1", "100.128.0.1"})
    EXPECT_TRUE(is_public_address(good)) << good;
  for (const char* bad : {"127.0.0.1",
                          "127.9.9.9",
                          "0.0.0.0",
                          "10.0.0.1",
                          "172.16.0.1",
                          "172.31.255.255",
                          "192.168.1.1",
                          "169.254.169.254",
                          "100.64.0.1",
                          "198.18.0.1",
                          "224.0.0.1",
                          "255.255.255.255",
                          "::1",
                          "::",
                          "fe80::1",
                          "fc00::1",
                          "fd12::1",
                          "ff02::1",
                          "::ffff:127.0.0.1",
                          "::ffff:10.1.1.1",
                          "64:ff9b::7f00:1",
                          "2002:7f00:1::",
                          "2001::1",
                          "2001:db8::1",
                          "3fff",
                          "localhost",
                          "",
                          "0x7f.1",
                          "2130706433",
                          "127.1"})
    EXPECT_FALSE(is_public_address(bad)) << bad;
}

TEST(Addresses, OnesOwnAreKnown) {
  for (const char* own : {"127.0.0.1", "::ffff:127.0.0.1"}) EXPECT_TRUE(is_own_address(own)) << own;
  for (const char* other : {"93.184.216.34", "2606:4700::1111", "not an address", ""})
    EXPECT_FALSE(is_own_address(other)) << other;
}

TEST(Addresses, NamesAreJudgedByWhereTheyLead) {
  EXPECT_FALSE(resolve_allowed("localhost", 80, Reach::public_only));
  EXPECT_FALSE(resolve_allowed("127.1", 80, Reach::public_only));
  EXPECT_FALSE(resolve_allowed("2130706433", 80, Reach::public_only));
  EXPECT_FALSE(resolve_allowed("0x7f.1", 80, Reach::public_only));
  for (const char* name : {"localhost", "localhost.", "a.localhost"}) {
    auto own = resolve_allowed(name, 80, Reach::anywhere);
    ASSERT_TRUE(own) << name;
    EXPECT_EQ(own->front(), "127.0.0.1");
  }
  auto anywhere = resolve_allowed("127.0.0.1", 80, Reach::anywhere);
  ASSERT_TRUE(anywhere);
  EXPECT_EQ(anywhere->front(), "127.0.0.1");
}

TEST(WebAddresses, OnlyPlainOnes) {
  auto address = parse_web_address("https://Example.org/a?b");
  ASSERT_TRUE(address);
  EXPECT_EQ(address->host, "example.org");
  EXPECT_EQ(address->port, 443);
  EXPECT_EQ(parse_web_address("http://[::1]:81/")->host, "::1");
  EXPECT_EQ(parse_web_address("http://[::1]:81/")->port, 81);
  for (const char* bad : {"ftp://a/", "file:///etc/passwd", "gopher://a/", "http://u:p@a/",
                          "http://", "http:\x0f", "http:", "http:a", "http://a b/", "http://a/\x7f",
                          "a.b", "http://a:0/", "http://a:70000/", "javascript:1", ""})
    EXPECT_FALSE(parse_web_address(bad)) << bad;
}

}  // namespace
}  // namespace asr
