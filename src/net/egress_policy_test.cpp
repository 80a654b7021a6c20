#include "net/egress_policy.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using namespace std::string_literals;

// Names as a program might write them, and what they are. "" for what is refused.
struct Spelling {
  std::string written;
  std::string canonical;
};

std::vector<Spelling> spellings() {
  std::string long_label(64, 'a');
  std::string long_name;
  for (int i = 0; i < 60; ++i) long_name += "abcd.";
  return {
      // Names.
      {"example.com", "example.com"},
      {"EXAMPLE.Com", "example.com"},
      {"example.com.", "example.com"},
      {"example.com..", ""},
      {".example.com", ""},
      {"a..example.com", ""},
      {".", ""},
      {"", ""},
      {"a", "a"},
      {"localhost", "localhost"},
      {"a-b.example.com", "a-b.example.com"},
      {"r3---sn-abc.example.com", "r3---sn-abc.example.com"},
      {"-a.example.com", ""},
      {"a-.example.com", ""},
      {"a_b.example.com", ""},
      {"_dmarc.example.com", ""},
      {"exa mple.com", ""},
      {"example.com\t", ""},
      {"example.com\r\nx", ""},
      {"example.com\0.evil.org"s, ""},
      {"example.com%00.evil.org", ""},
      {"example%2ecom", ""},
      {"example.com/", ""},
      {"example.com#", ""},
      {"example.com?", ""},
      {"user@example.com", ""},
      {"example.com\\evil.org", ""},
      {"*.example.com", ""},
      {"ex*mple.com", ""},
      {long_label + ".com", ""},
      {long_label.substr(1) + ".com", long_label.substr(1) + ".com"},
      {long_name + "com", ""},
      {std::string(5000, 'a'), ""},
      // Not ASCII.
      {"bücher.example", "xn--bcher-kva.example"},
      {"BÜCHER.example", "xn--bcher-kva.example"},
      {"xn--bcher-kva.example", "xn--bcher-kva.example"},
      {"XN--BCHER-KVA.example", "xn--bcher-kva.example"},
      {"straße.example", "xn--strae-oqa.example"},
      {"ｅｘａｍｐｌｅ.com", "example.com"},
      {"example。com", "example.com"},
      {"ехample.com", "xn--ample-ywe6i.com"},  // Cyrillic letters
      {"xn--example-.com", ""},
      {"xn--.com", ""},
      {"xn--a.com", ""},
      {"xn--99999999999.com", ""},
      {"\xff\xfe.com", ""},
      {"a\xc2\xad.com", "a.com"},  // a soft hyphen is nothing
      {"\xe2\x80\x8b.com", ""},
      {"a\xe2\x88\x95z.com", ""},  // ∕ looks like a slash
      {"１２７.0.0.1", "127.0.0.1"},
      {"127。0。0。1", "127.0.0.1"},
      // Addresses and what somebody takes for one.
      {"93.184.216.34", "93.184.216.34"},
      {"93.184.216.34.", "93.184.216.34"},
      {"1572395042", "93.184.216.34"},
      {"0x5db8d822", "93.184.216.34"},
      {"0X5DB8D822", "93.184.216.34"},
      {"0135.0270.0330.042", "93.184.216.34"},
      {"0x5d.0xb8.0xd8.0x22", "93.184.216.34"},
      {"93.12113954", "93.184.216.34"},
      {"93.184.55330", "93.184.216.34"},
      {"127.1", "127.0.0.1"},
      {"0", "0.0.0.0"},
      {"00", "0.0.0.0"},
      {"0x7f.1", "127.0.0.1"},
      {"256.1.1.1", ""},
      {"1.2.3.256", ""},
      {"1.2.3.4.5", ""},
      {"1.2.3.08", ""},
      {"1.2.3.0x", ""},
      {"1.2.3.0xg", ""},
      {"4294967296", ""},
      {"4294967295", "255.255.255.255"},
      {"example.123", ""},
      {"1.example", "1.example"},
      {"[::1]", "::1"},
      {"::1", "::1"},
      {"[2001:DB8::1]", "2001:db8::1"},
      {"[2001:0db8:0000:0000:0000:0000:0000:0001]", "2001:db8::1"},
      {"[::ffff:93.184.216.34]", "93.184.216.34"},
      {"[::ffff:5db8:d822]", "93.184.216.34"},
      {"[::ffff:127.0.0.1]", "127.0.0.1"},
      {"[fe80::1%eth0]", ""},
      {"[fe80::1%25eth0]", ""},
      {"[::1", ""},
      {"::1]", ""},
      {"[]", ""},
      {"[example.com]", ""},
      {"[127.0.0.1]", ""},
      {"[v1.fe80]", ""},
  };
}

TEST(HostNames, HaveOneSpelling) {
  for (const auto& [written, canonical] : spellings()) {
    auto host = canonical_host(written);
    if (canonical.empty()) {
      EXPECT_FALSE(host) << written << " is " << host->text;
    } else {
      ASSERT_TRUE(host) << written << ": " << host.error().what;
      EXPECT_EQ(host->text, canonical) << written;
      EXPECT_EQ(canonical_host(canonical)->text, canonical) << "and keep it";
    }
  }
}

TEST(HostNames, WithAPort) {
  EXPECT_EQ(parse_authority("Example.com:443")->port, 443);
  EXPECT_EQ(parse_authority("[::1]:8080")->host.text, "::1");
  EXPECT_EQ(parse_authority("example.com", 80)->port, 80);
  EXPECT_EQ(parse_authority("[::1]", 80)->host.text, "::1");
  EXPECT_EQ(parse_authority("example.com:81", 80)->port, 81);
  for (const char* wrong :
       {"example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:443:80",
        "example.com:+1", "example.com:-1", ":443", "", "[::1]", "::1:443", "example.com:4 43",
        "example.com:0x1bb", "example.com: 443", "a@b:443", "example.com:443/",
        "example.com:000443"})
    EXPECT_FALSE(parse_authority(wrong)) << wrong;
  EXPECT_FALSE(parse_authority("example.com:", 80));
  EXPECT_FALSE(parse_authority("", 80));
}

EgressRule rule(std::string host, std::vector<std::uint16_t> ports = {443, 80}) {
  EgressRule made;
  made.host = std::move(host);
  made.ports = std::move(ports);
  return made;
}

EgressRule with_credential(EgressRule made, std::string value = "secret") {
  made.credentials.push_back({"Authorization", std::move(value), "/"});
  return made;
}

bool allows(const EgressPolicy& policy, const std::string& host, std::uint16_t port = 443) {
  auto name = canonical_host(host);
  return name && policy.match(*name, port) != nullptr;
}

TEST(EgressPolicy, EmptyDeniesEverything) {
  EgressPolicy nothing;
  auto empty = EgressPolicy::make({});
  ASSERT_TRUE(empty);
  for (const char* host : {"example.com", "localhost", "127.0.0.1", "a"}) {
    EXPECT_FALSE(allows(nothing, host));
    EXPECT_FALSE(allows(*empty, host));
  }
}

TEST(EgressPolicy, NamesMatchByLabels) {
  auto policy = EgressPolicy::make({rule("api.example.com"), rule("*.Example.ORG."),
                                    rule("bücher.example"), rule("*.a.b.example")});
  ASSERT_TRUE(policy) << policy.error().what;
  struct Case {
    const char* host;
    bool allowed;
  };
  constexpr Case kCases[] = {
      {"api.example.com", true},
      {"API.EXAMPLE.COM", true},
      {"api.example.com.", true},
      {"example.com", false},
      {"xapi.example.com", false},
      {"x.api.example.com", false},
      {"api.example.com.evil", false},
      {"api.example.co", false},
      {"api-example.com", false},
      {"api.example.comm", false},
      {"www.example.org", true},
      {"a.b.c.example.org", true},
      {"WWW.example.org.", true},
      {"example.org", false},
      {".example.org", false},
      {"evil-example.org", false},
      {"evilexample.org", false},
      {"example.org.evil", false},
      {"www.example.org.evil.com", false},
      {"a_b.example.org", false},
      {"%00.example.org", false},
      {"xn--bcher-kva.example", true},
      {"bücher.example", true},
      {"bucher.example", false},
      {"www.bücher.example", false},
      {"ехample.org", false},
      {"www.ехample.org", false},
      {"x.a.b.example", true},
      {"a.b.example", false},
      {"b.example", false},
      {"93.184.216.34", false},
      {"1572395042", false},
      {"[::1]", false},
  };
  for (const Case& each : kCases) EXPECT_EQ(allows(*policy, each.host), each.allowed) << each.host;
}

TEST(EgressPolicy, OnlyListedPorts) {
  auto policy = EgressPolicy::make({rule("a.example"), rule("b.example", {22, 9418})});
  ASSERT_TRUE(policy);
  for (std::uint16_t port : {443, 80}) EXPECT_TRUE(allows(*policy, "a.example", port));
  for (std::uint16_t port : {0, 1, 22, 25, 53, 81, 444, 6379, 8443, 65535})
    EXPECT_FALSE(allows(*policy, "a.example", port)) << port;
  EXPECT_TRUE(allows(*policy, "b.example", 22));
  EXPECT_FALSE(allows(*policy, "b.example", 443));
}

TEST(EgressPolicy, AddressesOnlyIfThatVeryOneIsListed) {
  auto policy =
      EgressPolicy::make({rule("93.184.216.34"), rule("[2001:db8::1]"), rule("*.4.example")});
  ASSERT_TRUE(policy) << policy.error().what;
  for (const char* same : {"93.184.216.34", "1572395042", "0x5db8d822", "0135.0270.0330.042",
                           "93.184.55330", "[::ffff:93.184.216.34]", "[2001:db8:0::1]"})
    EXPECT_TRUE(allows(*policy, same)) << same;
  for (const char* other : {"93.184.216.35", "[2001:db8::2]", "1572395043", "[::93.184.216.34]",
                            "[64:ff9b::93.184.216.34]"})
    EXPECT_FALSE(allows(*policy, other)) << other;
  for (const char* odd : {"1572395042", "0x5db8d822", "93.184.55330", "[::ffff:93.184.216.34]",
                          "[2001:DB8::1]", "093.184.216.34"})
    EXPECT_FALSE(EgressPolicy::make({rule(odd)})) << odd;
}

TEST(EgressPolicy, WhatIsNoRule) {
  for (const char* host : {"", "*", "*.", "*.com", "*.*.example.com", "a.*.example.com",
                           "*example.com", "http://example.com", "example.com:443", "example.com/x",
                           "*.1.2.3.4", "a_b.example.com", "exa mple.com", "*.[::1]"})
    EXPECT_FALSE(EgressPolicy::make({rule(host)})) << host;
  EXPECT_FALSE(EgressPolicy::make({rule("a.example", {})}));
  EXPECT_FALSE(EgressPolicy::make({rule("a.example", {0})}));
}

TEST(EgressPolicy, FullIsEveryHostAndNoPrivateReach) {
  auto policy = EgressPolicy::make({rule("inner.example", {5432})}, EgressScope::any_public);
  ASSERT_TRUE(policy);
  for (const char* host : {"example.com", "8.8.8.8", "localhost", "[::1]"}) {
    auto name = canonical_host(host);
    auto found = policy->match(*name, 12345);
    ASSERT_TRUE(found) << host;
    EXPECT_TRUE(is_catch_all(*found));
    EXPECT_EQ(found->reach, Reach::public_only);
  }
  EXPECT_FALSE(is_catch_all(*policy->match(*canonical_host("inner.example"), 5432)));
  EXPECT_FALSE(policy->match(*canonical_host("example.com"), 0));
}

TEST(EgressPolicy, TheNarrowestRuleCounts) {
  EgressRule wide = rule("*.example.com");
  EgressRule narrow = with_credential(rule("*.api.example.com"));
  EgressRule exact = rule("one.api.example.com", {443});
  exact.reach = Reach::anywhere;
  auto policy = EgressPolicy::make({wide, narrow, exact});
  ASSERT_TRUE(policy);
  EXPECT_TRUE(policy->match(*canonical_host("x.example.com"), 443)->credentials.empty());
  EXPECT_FALSE(policy->match(*canonical_host("x.api.example.com"), 443)->credentials.empty());
  auto found = policy->match(*canonical_host("one.api.example.com"), 443);
  EXPECT_EQ(found->reach, Reach::anywhere);
  EXPECT_TRUE(found->credentials.empty());
  EXPECT_EQ(policy->match(*canonical_host("one.api.example.com"), 80)->host, "*.api.example.com");
}

TEST(EgressPolicy, CredentialsAreChecked) {
  EXPECT_TRUE(EgressPolicy::make({with_credential(rule("a.example"))}));
  EXPECT_TRUE(EgressPolicy::make({with_credential(rule("*.a.example"))}));
  EXPECT_FALSE(EgressPolicy::make({with_credential(rule("a.example", {80}))})) << "in plain text";
  EXPECT_FALSE(EgressPolicy::make({with_credential(rule("93.184.216.34"))}));
  for (const char* header : {"", "Host", "host", "Content-Length", "Transfer-Encoding",
                             "Connection", "A B", "A:", "A\r\nB", "Proxy-Authorization"}) {
    EgressRule made = with_credential(rule("a.example"));
    made.credentials[0].header = header;
    EXPECT_FALSE(EgressPolicy::make({made})) << header;
  }
  for (const std::string& value :
       {""s, "a\r\nX: y"s, "a\nb"s, "a\0b"s, " a"s, "a "s, std::string(9000, 'x')})
    EXPECT_FALSE(EgressPolicy::make({with_credential(rule("a.example"), value)}));
  for (const char* path :
       {"", "v1", "/v1?x", "/a/../b", "/a%2fb", "/a#b", "/a b", "/./a", "/a\\b"}) {
    EgressRule made = with_credential(rule("a.example"));
    made.credentials[0].path_prefix = path;
    EXPECT_FALSE(EgressPolicy::make({made})) << path;
  }
  auto failed = EgressPolicy::make({with_credential(rule("a.example"), "top\nsecret")});
  ASSERT_FALSE(failed);
  EXPECT_EQ((failed.error().what + failed.error().hint).find("secret"), std::string::npos);
}

TEST(EgressPaths, LieBelowAPrefixForEveryReader) {
  for (const char* below : {"/v1", "/v1/", "/v1/x", "/v1?q", "/v1/x%20y", "/v1//x", "/v1/a.b/..c"})
    EXPECT_TRUE(*path_is_below(below, "/v1")) << below;
  for (const char* not_below : {"/", "/v10", "/V1", "/x/v1", "/v1%20", "//v1", "/%761/x", "/v1;x"})
    EXPECT_FALSE(*path_is_below(not_below, "/v1")) << not_below;
  for (const char* unclear :
       {"/v1/..", "/v1/../x", "/v1/./x", "/v1/%2e%2e/x", "/v1/%2E./x", "/v1/..%2fx", "/v1/..%5cx",
        "/v1/..\\x", "/v1/..;/x", "/v1/..;a=b/x", "/v1/%252e%252e/x", "/v1/x%252Fy", "/x%00"})
    EXPECT_FALSE(path_is_below(unclear, "/v1")) << unclear;
  EXPECT_TRUE(*path_is_below("/v1/", "/v1/"));
  EXPECT_FALSE(*path_is_below("/v1", "/v1/"));
  EXPECT_TRUE(*path_is_below("/a/../b%2fc", "/")) << "below the root is everything";
}

}  // namespace
}  // namespace asr
