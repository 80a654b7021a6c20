#include "api/e2b/network.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace asr {
namespace {

Result<NetworkRequest> network(const char* text, std::optional<bool> internet = {},
                               bool offered = true) {
  return e2b_network_from(json::parse(text).as_object(), internet, offered);
}

TEST(E2bNetwork, IsTheInternetUnlessSomebodySaysNo) {
  EXPECT_EQ(network("{}")->mode, NetworkMode::public_only);
  EXPECT_EQ(network("{}", true)->mode, NetworkMode::public_only);
  EXPECT_EQ(network("{}", false)->mode, NetworkMode::allow);
  EXPECT_EQ(network("{}", true, false)->mode, NetworkMode::allow) << "the server gives none";
  EXPECT_TRUE(network("{}", false)->policy.rules().empty());
}

TEST(E2bNetwork, AListCountsWhereEverythingElseIsDenied) {
  auto wanted = network(R"({"allowOut": ["example.org", "*.example.com", "1.1.1.1/32"],
                            "denyOut": ["0.0.0.0/0"]})");
  ASSERT_TRUE(wanted) << wanted.error().what;
  EXPECT_EQ(wanted->mode, NetworkMode::allow);
  EXPECT_TRUE(wanted->policy.match(*canonical_host("example.org"), 443));
  EXPECT_TRUE(wanted->policy.match(*canonical_host("a.example.com"), 443));
  EXPECT_TRUE(wanted->policy.match(*canonical_host("1.1.1.1"), 443));
  EXPECT_FALSE(wanted->policy.match(*canonical_host("example.net"), 443));
}

TEST(E2bNetwork, RulesSetHeadersWithOurSecrets) {
  auto wanted = network(R"({"rules": {"api.example.org": [{"transform": {"headers":
      {"Authorization": "Bearer ${e2b.secrets.token}"}}}]}})");
  ASSERT_TRUE(wanted) << wanted.error().what;
  ASSERT_EQ(wanted->policy.rules().size(), 1U);
  EXPECT_EQ(wanted->policy.rules()[0]->credentials[0].value, "Bearer ${secret.token}");
  json::object told = e2b_network_of(*wanted);
  EXPECT_EQ(to_text(told).find("secret"), std::string::npos);
  EXPECT_TRUE(told.at("rules").at("api.example.org").is_array());
}

TEST(E2bNetwork, WhatCannotBeSaidIsRefusedWithWhatCan) {
  for (
      const char* text :
      {R"({"allowOut": ["example.org"]})", R"({"denyOut": ["8.8.8.8"]})",
       R"({"allowOut": ["10.0.0.0/8"], "denyOut": ["0.0.0.0/0"]})",
       R"({"egressProxy": {"address": "x:1"}})",
       R"({"denyOut": ["0.0.0.0/0"], "rules": {"a.example.org": [{"transform": {"headers": {"A": "b"}}}]}})",
       R"({"rules": {"a.example.org": [{"transform": {"headers": {"A": "${e2b.identity.tokens.x}"}}}]}})",
       R"({"rules": {"a.example.org": [{"transform": {"body": "x"}}]}})",
       R"({"rules": {"1.2.3.4": [{"transform": {"headers": {"A": "b"}}}]}})",
       R"({"rules": {"a.example.org": [{"transform": {"headers": {"Host": "b"}}}]}})",
       R"({"allowOut": "example.org"})"}) {
    auto refused = network(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_TRUE(refused.error().code == Errc::invalid || refused.error().code == Errc::unsupported);
  }
}

TEST(E2bNetwork, PortsByHttpsAreRefused) {
  EXPECT_FALSE(e2b_preview_from(json::parse(R"({"httpsPorts": [8443]})").as_object()));
  EXPECT_TRUE(e2b_preview_from(json::parse(R"({"httpsPorts": []})").as_object()));
}

}  // namespace
}  // namespace asr
