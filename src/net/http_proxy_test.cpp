#include "net/http_proxy.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Proxy, WhatBelongsToOneConnectionStays) {
  Headers headers;
  headers.add("Connection", "keep-alive, X-Secret, close");
  headers.add("X-Secret", "1");
  headers.add("Keep-Alive", "5");
  headers.add("Transfer-Encoding", "chunked");
  headers.add("Upgrade", "h2c");
  headers.add("Accept", "*/*");
  remove_hop_by_hop(headers);
  ASSERT_EQ(headers.all().size(), 1U);
  EXPECT_EQ(headers.all()[0].first, "Accept");
}

TEST(Proxy, CookiesLoseTheirDomain) {
  EXPECT_EQ(without_domain("a=b; Domain=example.org; Path=/"), "a=b; Path=/");
  EXPECT_EQ(without_domain("a=b; domain =x"), "a=b");
  EXPECT_EQ(without_domain("domain=b; Secure"), "domain=b; Secure");
  EXPECT_EQ(without_domain("a=b"), "a=b");
}

}  // namespace
}  // namespace asr
