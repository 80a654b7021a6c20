#include "session/network_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace asr {
namespace {

using testing::HasSubstr;
using testing::Not;

Result<NetworkRequest> read(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value) << text;
  return network_request_from(value->get_object());
}

TEST(NetworkRequests, NothingIsOpenUnlessAsked) {
  auto none = read(R"({"mode":"none"})");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->needs_proxy());
  EXPECT_EQ(to_text(json_of(*none)), R"({"mode":"none"})");
  auto empty = read(R"({"mode":"allow"})");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->needs_proxy());
  EXPECT_FALSE(empty->policy.match(*canonical_host("example.com"), 443));
}

TEST(NetworkRequests, HostsPortsAndCredentials) {
  auto request = read(R"({"mode":"allow","bytes":"1M","allow":[
    {"host":"*.Example.org"},
    {"host":"api.example.com","ports":[443],
     "credentials":[{"header":"Authorization","value":"Bearer top-secret","path":"/v1"}]}]})");
  ASSERT_TRUE(request) << request.error().what;
  EXPECT_EQ(request->policy.most_bytes(), 1U << 20);
  EXPECT_TRUE(request->policy.match(*canonical_host("a.example.org"), 80));
  auto rule = request->policy.match(*canonical_host("api.example.com"), 443);
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->credentials.at(0).value, "Bearer top-secret");
  EXPECT_EQ(rule->reach, Reach::public_only);
  std::string shown = to_text(json_of(*request));
  EXPECT_THAT(shown, Not(HasSubstr("secret")));
  EXPECT_THAT(shown, HasSubstr(R"("header":"Authorization","path":"/v1")"));
  EXPECT_THAT(shown, HasSubstr("*.example.org"));
  auto again = read(to_text(json_of(*request, Secrets::included)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->policy.match(*canonical_host("api.example.com"), 443)->credentials.at(0).value,
            "Bearer top-secret");
}

TEST(NetworkRequests, FullIsEveryPublicHost) {
  auto open = read(R"({"mode":"public"})");
  ASSERT_TRUE(open);
  auto rule = open->policy.match(*canonical_host("anything.example"), 12345);
  ASSERT_TRUE(rule);
  EXPECT_EQ(rule->reach, Reach::public_only);
  EXPECT_TRUE(check_allowed(*open, Role::user));
}

TEST(NetworkRequests, PrivateAddressesAreAnOperatorsToGive) {
  auto request =
      read(R"({"mode":"allow","allow":[{"host":"db.internal","ports":[5432],"private":true}]})");
  ASSERT_TRUE(request);
  EXPECT_FALSE(check_allowed(*request, Role::user));
  EXPECT_TRUE(check_allowed(*request, Role::oper));
  EXPECT_TRUE(check_allowed(*request, Role::admin));
  auto plain = read(R"({"mode":"allow","allow":[{"host":"a.example","private":false}]})");
  EXPECT_TRUE(check_allowed(*plain, Role::user));
}

TEST(NetworkRequests, MistakesNameTheirPlaceAndNoSecret) {
  auto wrong = read(R"({"mode":"allow","allow":[{"host":"a.example"},{"host":"a_b.example"}]})");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().what, HasSubstr("/network/allow/1"));
  wrong = read(R"({"mode":"allow","allow":[{"host":"a.example",
    "credentials":[{"header":"Host","value":"top-secret"}]}]})");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().what + wrong.error().hint, Not(HasSubstr("secret")));
  EXPECT_FALSE(read(R"({"mode":"none","allow":[]})"));
  EXPECT_FALSE(read(R"({"mode":"none","bytes":1})"));
  EXPECT_FALSE(read(R"({"mode":"allow","bytes":"many"})"));
}

}  // namespace
}  // namespace asr
