#include "os/rtnetlink.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "os/netns.hpp"
#include "os/nftables.hpp"

namespace asr {
namespace {

constexpr MacAddress kHereMac{2, 0, 0, 0, 0, 1};
constexpr MacAddress kThereMac{2, 0, 0, 0, 0, 2};

Ipv4 address(const char* text) { return *parse_ipv4(text); }

// Each in a namespace of its own, which ends with the test.
class Rtnetlink : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

TEST_F(Rtnetlink, APairLeadsIntoTheOtherNamespace) {
  auto tried = in_new_network([]() -> Result<void> {
    UniqueFd other;
    std::optional<RouteSocket> there;
    TRY(in_new_network([&]() -> Result<void> {
      other = TRY(own_network());
      there.emplace(TRY(RouteSocket::open()));
      return {};
    }));
    RouteSocket here = TRY(RouteSocket::open());
    TRY(here.make_veth({"outer", kHereMac}, {"eth0", kThereMac}, other.get(), 1400));
    NetworkLink outer = TRY(here.link("outer"));
    NetworkLink inner = TRY(there->link("eth0"));
    EXPECT_EQ(outer.mtu, 1400U);
    EXPECT_EQ(inner.mtu, 1400U);
    EXPECT_EQ(TRY(here.links()).size(), 2U);  // and loopback
    TRY(here.set_state(outer.index, LinkState::up));

    TRY(here.add_address(outer.index, address("10.1.0.1")));
    TRY(here.add_neighbour(outer.index, address("10.1.0.2"), kThereMac));
    TRY(here.add_host_route(outer.index, address("10.1.0.2"), address("10.1.0.1")));
    auto again = here.add_host_route(outer.index, address("10.1.0.2"), address("10.1.0.1"));
    EXPECT_FALSE(again);
    if (!again) EXPECT_EQ(again.error().code, Errc::conflict);
    EXPECT_EQ(TRY(here.way_to(address("10.1.0.2"))), outer.index);
    EXPECT_EQ(here.way_to(address("8.8.8.8")).error().code, Errc::not_found);

    TRY(there->set_state(inner.index, LinkState::up));
    TRY(there->add_address(inner.index, address("10.1.0.2")));
    TRY(there->add_neighbour(inner.index, address("10.1.0.1"), kHereMac));
    TRY(there->add_default_route(inner.index, address("10.1.0.1")));
    EXPECT_EQ(TRY(there->way_to(address("8.8.8.8"))), inner.index);

    TRY(here.remove_link("outer"));
    EXPECT_EQ(here.remove_link("outer").error().code, Errc::not_found);
    EXPECT_EQ(here.link("outer").error().code, Errc::not_found);
    EXPECT_EQ(there->link("eth0").error().code, Errc::not_found);
    return {};
  });
  EXPECT_TRUE(tried) << tried.error().what;
}

TEST_F(Rtnetlink, TheFilterTakesAllOrNothing) {
  auto tried = in_new_network([]() -> Result<void> {
    TRY(run_nft("table inet one { chain c {}; }"));
    EXPECT_NE(TRY(run_nft("list tables")).find("one"), std::string::npos);
    auto half = run_nft("add table inet two\ndelete table inet three\n");
    EXPECT_FALSE(half);
    EXPECT_EQ(TRY(run_nft("list tables")).find("two"), std::string::npos);
    EXPECT_FALSE(run_nft("this is no command"));
    return {};
  });
  EXPECT_TRUE(tried) << tried.error().what;
}

TEST_F(Rtnetlink, DeletedTablesAreSeen) {
  auto tried = in_new_network([]() -> Result<void> {
    UniqueFd watch = TRY(watch_nft());
    EXPECT_FALSE(saw_deleted_table(watch.get()));
    TRY(run_nft("table inet one { chain c {}; }"));
    EXPECT_FALSE(saw_deleted_table(watch.get()));
    TRY(run_nft("flush ruleset"));
    EXPECT_TRUE(saw_deleted_table(watch.get()));
    EXPECT_FALSE(saw_deleted_table(watch.get()));
    return {};
  });
  EXPECT_TRUE(tried) << tried.error().what;
}

}  // namespace
}  // namespace asr
