#include "engine/full_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/id_ranges.hpp"
#include "os/netns.hpp"
#include "os/nftables.hpp"

namespace asr {
namespace {

using testing::HasSubstr;
using testing::Not;

NetworkRules some_rules() {
  NetworkRules rules;
  rules.table = table_of(InstanceId("i-one"));
  rules.links = link_prefix_of(InstanceId("i-one"));
  rules.resolvers = {*parse_ipv4("10.0.0.53")};
  rules.allowed = {*parse_ipv4_network("10.1.2.0/24")};
  rules.connections = 17;
  return rules;
}

TEST(FullNetworkRules, NamesAreTheInstancesOwn) {
  InstanceId one("i-one");
  InstanceId two("i-two");
  EXPECT_NE(link_prefix_of(one), link_prefix_of(two));
  EXPECT_NE(table_of(one), table_of(two));
  EXPECT_EQ(link_prefix_of(one).size(), kLinkPrefix);
}

TEST(FullNetworkRules, NamesFitTheKernel) {
  InstanceId longest("i-" + std::string(32, 'x') + "_01234567");
  std::uint32_t last =
      IdRanges::kFirst + (IdRanges::kBlocks * IdRanges::kRangesPerBlock - 1) * IdRanges::kRangeSize;
  EXPECT_LE(link_of(longest, last).size(), 15U);
  EXPECT_NE(link_of(longest, last), link_of(longest, IdRanges::kFirst));
}

TEST(FullNetworkRules, SayWhatWasAskedFor) {
  std::string text = to_nft(some_rules());
  EXPECT_THAT(text, HasSubstr("elements = { 10.0.0.53 }"));
  EXPECT_THAT(text, HasSubstr("elements = { 10.1.2.0/24 }"));
  EXPECT_THAT(text, HasSubstr("ct count over 17"));
  for (const char* word : {"LINKS", "MOST"}) EXPECT_THAT(text, Not(HasSubstr(word)));
}

// Whatever falls into the gap between the two would be open.
TEST(FullNetworkRules, ReplaceTheirPredecessorInOneTransaction) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  auto tried = in_new_network([]() -> Result<void> {
    TRY(run_nft(to_nft(some_rules())));
    NetworkRules other = some_rules();
    other.allowed.clear();
    other.resolvers.clear();
    TRY(run_nft(to_nft(other)));
    std::string now = TRY(run_nft("list table inet " + other.table));
    EXPECT_THAT(now, Not(HasSubstr("10.1.2.0/24")));
    EXPECT_THAT(now, HasSubstr("169.254.0.0/16"));
    TRY(run_nft(removal_of(other.table)));
    TRY(run_nft(removal_of(other.table)));  // It is gone, and that is no error.
    EXPECT_EQ(TRY(run_nft("list tables")), "");
    return {};
  });
  EXPECT_TRUE(tried) << tried.error().what;
}

TEST(FullNetworkOptions, MustMakeSense) {
  EXPECT_TRUE(check(FullNetworkOptions{}));
  FullNetworkOptions options;
  options.resolvers = {"1.1.1.1", "1.0.0.1", "9.9.9.9", "8.8.8.8"};
  EXPECT_FALSE(check(options));
  options.resolvers = {"1.1.1.1"};
  EXPECT_TRUE(check(options));
  options.allow = {"everything"};
  EXPECT_FALSE(check(options));
}

}  // namespace
}  // namespace asr
