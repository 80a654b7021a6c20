// Sandboxes with a way to the internet: what they reach, what they must not, and what is left of
// it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <regex>
#include <sstream>

#include "engine/full_network_rules.hpp"
#include "kept_victim.hpp"
#include "kernel_test.hpp"
#include "os/conntrack.hpp"
#include "os/file.hpp"
#include "os/netns.hpp"
#include "os/nftables.hpp"
#include "os/pidfd.hpp"
#include "support/small_internet.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
constexpr auto kTcp = Server::Kind::tcp;
constexpr auto kUdp = Server::Kind::udp;

class FullNetworkTest : public KernelTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    internet_.emplace();
    options().full_network = FullNetworkOptions{};
    options().full_network->resolvers = {kPrivateResolver};
    tool_ = scratch() / "tool";
    write_host_file(tool_, tool_image(), 0755);
  }
  void TearDown() override {
    stop_engine();
    if (internet_) EXPECT_THAT(own_tables(), IsEmpty());
    if (internet_) EXPECT_THAT(own_links(), IsEmpty());
    internet_.reset();
  }

  SmallInternet& internet() { return *internet_; }
  static SandboxSpec networked(Preset preset = Preset::standard) {
    SandboxSpec spec = spec_of(preset);
    spec.network = Network::full;
    return spec;
  }
  SandboxPtr box() { return sandbox_with_tool(networked()); }

  // "reached ADDRESS", the address being the one the server saw; or "unreached …".
  std::string reach(Sandbox& sandbox, const std::string& arguments) {
    return sh(sandbox, std::string(kTool) + " reach " + arguments).out;
  }
  std::string reach_unsandboxed(const std::string& arguments) {
    return reach_outside(tool_, arguments);
  }
  std::string address_of(Sandbox& sandbox) {
    std::string routes = sh(sandbox, "cat /proc/net/fib_trie").out;
    std::smatch found;
    EXPECT_TRUE(std::regex_search(routes, found, std::regex("10\\.233\\.\\d+\\.\\d+")));
    for (; std::regex_search(routes, found, std::regex("10\\.233\\.\\d+\\.\\d+"));
         routes = found.suffix())
      if (found.str() != "10.233.0.1") return found.str();
    return "";
  }

  std::vector<std::string> own_links() {
    std::vector<std::string> names;
    auto links = internet().routes().links();
    for (const NetworkLink& link : *links)
      if (link.name.starts_with("as")) names.push_back(link.name);
    return names;
  }
  static std::string own_tables() { return *run_nft("list tables"); }
  // The tables stay, so that nobody puts them back.
  static void remove_rules() {
    std::istringstream tables(own_tables());
    for (std::string table; std::getline(tables, table);) ASSERT_TRUE(run_nft("flush " + table));
  }

  std::optional<SmallInternet> internet_;
  std::string tool_;
};

// ---- what works
// ----------------------------------------------------------------------------------

TEST_F(FullNetworkTest, TheInternetIsReachedAndAnswers) {
  auto web = internet().world(kTcp, kWeb, 80);
  auto echo = internet().world(kUdp, kWeb, 7);
  SandboxPtr one = box();
  // The world sees the machine, never the sandbox.
  EXPECT_EQ(reach(*one, std::string("tcp ") + kWeb + " 80"),
            std::string("reached ") + kMachine + "\n");
  EXPECT_EQ(reach(*one, std::string("udp ") + kWeb + " 7"),
            std::string("reached ") + kMachine + "\n");
  EXPECT_EQ(web->visitors(), 1);
  EXPECT_EQ(echo->visitors(), 1);
}

TEST_F(FullNetworkTest, EveryProgramFindsItReady) {
  auto web = internet().world(kTcp, kWeb, 80);
  SandboxPtr one = sandbox(networked(Preset::strict));
  std::string devices = sh(*one, "cat /proc/net/dev").out;
  EXPECT_THAT(devices, HasSubstr("eth0"));
  give_tool(*one);
  EXPECT_THAT(reach(*one, std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
  // As large as what the uplink carries.
  EXPECT_EQ(internet().routes().link(own_links().at(0))->mtu, 1420U);
}

TEST_F(FullNetworkTest, LoopbackInsideWorksBesides) {
  SandboxPtr one = box();
  auto server = start(*one, tool({"serve", "8080"}));
  read_until(*server, "listening");
  EXPECT_THAT(sh(*one, std::string(kTool) + " dial 8080").out, StartsWith("dialled 1"));
  EXPECT_TRUE(wait(one->connect(8080)));
}

TEST_F(FullNetworkTest, APoolHasThemReady) {
  auto web = internet().world(kTcp, kWeb, 80);
  must(engine()->warm(networked(), {.size = 2, .refill_at_once = 1}));
  SandboxPtr one = box();
  EXPECT_EQ(engine()->pools().at(0).served_warm, 1U);
  EXPECT_THAT(reach(*one, std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
}

// ---- what does not
// -------------------------------------------------------------------------------

TEST_F(FullNetworkTest, WhatIsNotPublicIsRefused) {
  SandboxPtr one = box();
  for (const char* address :
       {"10.9.9.9", "10.255.255.1", "172.16.3.4", "172.31.255.9", "192.168.7.7", "169.254.169.254",
        "100.64.1.1", "198.18.0.9", "192.0.2.1", "203.0.113.5"}) {
    for (auto kind : {kTcp, kUdp}) {
      auto server = internet().world(kind, address, 80);
      std::string where = (kind == kTcp ? "tcp " : "udp ") + std::string(address) + " 80";
      EXPECT_THAT(reach_unsandboxed(where), StartsWith("reached")) << where;
      EXPECT_THAT(reach(*one, where), StartsWith("unreached")) << where;
      EXPECT_EQ(server->visitors(), 1) << where;
    }
  }
}

TEST_F(FullNetworkTest, RefusalsAreAnswered) {
  SandboxPtr one = box();
  auto begin = Clock::now();
  EXPECT_THAT(reach(*one, "tcp 10.9.9.9 80"), HasSubstr("refused"));
  EXPECT_THAT(reach(*one, "tcp 169.254.169.254 80"), HasSubstr("refused"));
  EXPECT_THAT(reach(*one, "udp 10.9.9.9 80"), HasSubstr("No route to host"));
  EXPECT_LT(since(begin), 900ms);
}

TEST_F(FullNetworkTest, BroadcastAndMulticastGoNowhere) {
  SandboxPtr one = box();
  auto everybody = internet().machine(kUdp, 7000);
  EXPECT_THAT(reach_unsandboxed("udp 127.0.0.1 7000"), StartsWith("reached"));
  for (const char* address : {"255.255.255.255", "224.0.0.1", "239.1.2.3", "10.233.255.255"})
    EXPECT_THAT(reach(*one, "udp " + std::string(address) + " 7000"), Not(StartsWith("reached")));
  EXPECT_EQ(everybody->visitors(), 1);
}

TEST_F(FullNetworkTest, NetworksThatAreNamedCanBeReached) {
  options().full_network->allow = {"10.7.0.0/16", "192.168.7.7"};
  auto named = internet().world(kTcp, "10.7.1.1", 80);
  auto alone = internet().world(kTcp, "192.168.7.7", 80);
  auto beside = internet().world(kTcp, "192.168.7.8", 80);
  SandboxPtr one = box();
  EXPECT_THAT(reach(*one, "tcp 10.7.1.1 80"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, "tcp 192.168.7.7 80"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, "tcp 192.168.7.8 80"), StartsWith("unreached"));
  EXPECT_EQ(beside->visitors(), 0);
}

TEST_F(FullNetworkTest, TheMachineItselfIsOutOfReach) {
  options().full_network->allow = {"0.0.0.0/0"};
  auto tcp = internet().machine(kTcp, 9000);
  auto udp = internet().machine(kUdp, 9000);
  SandboxPtr one = box();
  int outside = 0;
  for (const char* address : {kMachine, kMachineToo, "10.233.0.1"})
    for (const char* kind : {"tcp ", "udp "}) {
      std::string where = kind + std::string(address) + " 9000";
      EXPECT_THAT(reach_unsandboxed(where), StartsWith("reached")) << where;
      ++outside;
      EXPECT_THAT(reach(*one, where), StartsWith("unreached")) << where;
    }
  EXPECT_THAT(reach(*one, "tcp 127.0.0.1 9000"), StartsWith("unreached"));
  EXPECT_EQ(tcp->visitors() + udp->visitors(), outside);
  // It is the rules that hold.
  remove_rules();
  EXPECT_THAT(reach(*one, std::string("tcp ") + kMachine + " 9000"), StartsWith("reached"));
}

TEST_F(FullNetworkTest, OtherSandboxesAreOutOfReach) {
  options().full_network->allow = {"10.0.0.0/8"};
  SandboxPtr one = box();
  SandboxPtr two = box();
  auto server = start(*two, tool({"serve_all", "8080"}));
  read_until(*server, "listening");
  std::string where = "tcp " + address_of(*two) + " 8080";
  EXPECT_NE(address_of(*one), address_of(*two));
  EXPECT_THAT(reach(*two, where), StartsWith("reached"));  // It is its own.
  EXPECT_THAT(reach(*one, where), StartsWith("unreached"));
  remove_rules();
  EXPECT_THAT(reach(*one, where), StartsWith("reached"));
}

TEST_F(FullNetworkTest, SandboxesOfAnotherEngineAreOutOfReach) {
  options().full_network->allow = {"10.0.0.0/8"};
  SandboxPtr one = box();
  EngineOptions other = options();
  other.runtime_dir = scratch() / "other";
  TestEngine second(other);
  SandboxPtr two = second.sandbox(networked());
  second.must(two->write_file(kTool, std::string(tool_image()), 0755));
  auto server = second.must(two->start(tool({"serve_all", "8080"})));
  while (second.must(server->read())->data.find("listening") == std::string::npos) {
  }
  std::string address = second.sh(*two, "cat /proc/net/fib_trie").out;
  std::smatch found;
  std::string theirs;
  for (; std::regex_search(address, found, std::regex("10\\.233\\.\\d+\\.\\d+"));
       address = found.suffix())
    if (found.str() != "10.233.0.1") theirs = found.str();
  EXPECT_NE(theirs, address_of(*one));
  EXPECT_THAT(reach(*one, "tcp " + theirs + " 8080"), StartsWith("unreached"));
  remove_rules();
  EXPECT_THAT(reach(*one, "tcp " + theirs + " 8080"), StartsWith("reached"));
}

// As the start of many a firewall does.
TEST_F(FullNetworkTest, RulesThatSomebodyFlushesComeBack) {
  auto hidden = internet().world(kTcp, "10.9.9.9", 80);
  auto web = internet().world(kTcp, kWeb, 80);
  SandboxPtr one = box();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(run_nft("flush ruleset"));
    EXPECT_TRUE(eventually([] { return !own_tables().empty(); }, 2s));
  }
  EXPECT_THAT(reach(*one, "tcp 10.9.9.9 80"), StartsWith("unreached"));
  EXPECT_THAT(reach(*one, std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
  EXPECT_EQ(hidden->visitors(), 0);
}

TEST_F(FullNetworkTest, NothingComesIn) {
  SandboxPtr one = box();
  auto server = start(*one, tool({"serve_all", "8080"}));
  read_until(*server, "listening");
  std::string address = address_of(*one);
  std::string where = "tcp " + address + " 8080";
  internet().world_route(address);
  auto from_world = [&] {
    std::string said;
    internet().in_world([&] { said = reach_unsandboxed(where); });
    return said;
  };
  EXPECT_THAT(reach_unsandboxed(where), StartsWith("unreached"));
  EXPECT_THAT(from_world(), StartsWith("unreached"));
  remove_rules();
  EXPECT_THAT(reach_unsandboxed(where), StartsWith("reached"));
  EXPECT_THAT(from_world(), StartsWith("reached"));
}

// A datagram with any source address, as nobody without the right to raw sockets could make it.
void send_forged(const std::string& from, const std::string& to, int port) {
  UniqueFd raw(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
  ASSERT_TRUE(raw);
  struct {
    iphdr ip{};
    udphdr udp{};
    char data = '?';
  } __attribute__((packed)) packet;
  packet.ip.version = 4;
  packet.ip.ihl = 5;
  packet.ip.ttl = 64;
  packet.ip.protocol = IPPROTO_UDP;
  packet.ip.tot_len = htons(sizeof packet);
  packet.ip.saddr = ::inet_addr(from.c_str());
  packet.ip.daddr = ::inet_addr(to.c_str());
  packet.udp.source = htons(4000);
  packet.udp.dest = htons(static_cast<std::uint16_t>(port));
  packet.udp.len = htons(sizeof(udphdr) + 1);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = packet.ip.daddr;
  ASSERT_EQ(::sendto(raw.get(), &packet, sizeof packet, 0, reinterpret_cast<sockaddr*>(&target),
                     sizeof target),
            static_cast<ssize_t>(sizeof packet))
      << strerror(errno);
}

TEST_F(FullNetworkTest, ForgedSourceAddressesGoNowhere) {
  auto echo = internet().world(kUdp, kWeb, 7);
  SandboxPtr one = box();
  SandboxPtr two = box();
  auto pidfd = open_pidfd(one->host_pid());
  ASSERT_TRUE(pidfd);
  auto forge = [&](const std::string& from) {
    ASSERT_TRUE(in_network_of(pidfd->get(), [&]() -> Result<void> {
      send_forged(from, kWeb, 7);
      return {};
    }));
  };
  forge(address_of(*one));
  EXPECT_TRUE(eventually([&] { return echo->visitors() == 1; }, 2s)) << "its own address passes";
  for (const std::string& from : {address_of(*two), std::string(kMachine), std::string("8.8.8.8"),
                                  std::string("10.233.0.1"), std::string("10.233.200.200")})
    forge(from);
  // What any program can do: an address that is its own, but not of this link.
  EXPECT_THAT(reach(*one, std::string("udp ") + kWeb + " 7 127.0.0.1"), Not(StartsWith("reached")));
  forge(address_of(*one));
  EXPECT_TRUE(eventually([&] { return echo->visitors() == 2; }, 2s));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(echo->visitors(), 2);
}

TEST_F(FullNetworkTest, NamesAreAskedOfTheNamedResolversOnly) {
  auto named_udp = internet().world(kUdp, kPrivateResolver, 53);
  auto named_tcp = internet().world(kTcp, kPrivateResolver, 53);
  auto named_web = internet().world(kTcp, kPrivateResolver, 80);
  auto other = internet().world(kUdp, kPublicResolver, 53);
  auto other_tcp = internet().world(kTcp, kPublicResolver, 53);
  SandboxPtr one = box();
  EXPECT_THAT(sh(*one, "cat /etc/resolv.conf").out, HasSubstr("nameserver 10.9.9.9\n"));
  EXPECT_THAT(reach(*one, "udp 10.9.9.9 53"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, "tcp 10.9.9.9 53"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, "tcp 10.9.9.9 80"), StartsWith("unreached"));
  EXPECT_THAT(reach(*one, "udp 8.8.4.4 53"), StartsWith("unreached"));
  EXPECT_THAT(reach(*one, "tcp 8.8.4.4 53"), StartsWith("unreached"));
  EXPECT_THAT(reach_unsandboxed("udp 8.8.4.4 53"), StartsWith("reached"));
  EXPECT_EQ(other->visitors(), 1);
  EXPECT_EQ(named_web->visitors() + other_tcp->visitors(), 0);
}

// A resolver on the machine itself is reached there, and nothing beside it.
TEST_F(FullNetworkTest, AResolverOnTheMachineIsReachedAtItsPortOnly) {
  options().full_network->resolvers = {kMachineToo};
  auto names = internet().machine(kUdp, 53, kMachineToo);
  auto canary = internet().machine(kUdp, 54);
  SandboxPtr one = box();
  EXPECT_THAT(reach(*one, std::string("udp ") + kMachineToo + " 53"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, std::string("udp ") + kMachine + " 53"), StartsWith("unreached"));
  EXPECT_THAT(reach(*one, std::string("udp ") + kMachineToo + " 54"), StartsWith("unreached"));
  EXPECT_EQ(canary->visitors(), 0);
}

TEST_F(FullNetworkTest, ThereIsNoIpv6) {
  SandboxPtr one = box();
  std::string addresses = sh(*one, "cat /proc/net/if_inet6").out;
  EXPECT_THAT(addresses, Not(HasSubstr("eth0")));
  EXPECT_THAT(sh(*one, "cat /proc/net/ipv6_route").out, Not(HasSubstr("eth0")));
}

TEST_F(FullNetworkTest, ConnectionsAreCounted) {
  options().full_network->connections = 5;
  auto echo = internet().world(kUdp, kWeb, 7);
  SandboxPtr one = box();
  SandboxPtr two = box();
  int reached = 0;
  for (int i = 0; i < 12; ++i)
    if (reach(*one, std::string("udp ") + kWeb + " 7").starts_with("reached")) ++reached;
  EXPECT_GE(reached, 5);
  EXPECT_LE(reached, 6);
  EXPECT_THAT(reach(*two, std::string("udp ") + kWeb + " 7"), StartsWith("reached"));
}

TEST_F(FullNetworkTest, ProgramsCannotChangeTheirNetwork) {
  SandboxPtr one = box();
  RunResult tried = sh(*one,
                       "ip link set eth0 down; ip addr add 10.233.7.7/32 dev eth0; ip route del "
                       "default; echo 1 > /proc/sys/net/ipv4/ip_forward; true",
                       "root");
  EXPECT_THAT(tried.err, Not(IsEmpty()));
  auto web = internet().world(kTcp, kWeb, 80);
  EXPECT_THAT(reach(*one, std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
}

// ---- what is told
// --------------------------------------------------------------------------------

TEST_F(FullNetworkTest, ItSaysWhatHolds) {
  SandboxPtr one = sandbox(networked());
  EXPECT_EQ(one->isolation().find("network")->guarantee, Guarantee::partial);
  EXPECT_THAT(one->isolation().find("network")->note, HasSubstr("no IPv6"));
  EXPECT_EQ(one->isolation().find("network_bandwidth")->guarantee, Guarantee::none);
  EXPECT_THAT(one->isolation().find("name_servers")->mechanism, HasSubstr("10.9.9.9"));
}

TEST_F(FullNetworkTest, WithoutResolversItSaysSo) {
  options().full_network->resolvers = std::vector<std::string>();
  SandboxPtr one = sandbox(networked());
  EXPECT_EQ(one->isolation().find("name_servers")->guarantee, Guarantee::none);
  EXPECT_THAT(sh(*one, "cat /etc/resolv.conf").out, Not(HasSubstr("nameserver")));
}

TEST_F(FullNetworkTest, ItIsOffUnlessSwitchedOn) {
  options().full_network.reset();
  auto made = wait(engine()->create(networked()));
  ASSERT_TRUE(failed_with(made, Errc::denied));
  EXPECT_THAT(made.error().hint, HasSubstr("full_network"));
  EXPECT_TRUE(failed_with(wait(engine()->warm(networked(), {})), Errc::denied));
  EXPECT_EQ(sandbox()->isolation().find("network")->guarantee, Guarantee::full);
  EXPECT_THAT(own_tables(), IsEmpty());
}

TEST_F(FullNetworkTest, AMachineThatForwardsNothingIsLeftAsItIs) {
  ASSERT_TRUE(write_value(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "0"));
  auto made = wait(engine()->create(networked()));
  ASSERT_TRUE(failed_with(made, Errc::unsupported));
  EXPECT_THAT(made.error().hint, HasSubstr("ip_forward"));
  EXPECT_EQ(*read_small_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward"), "0");
  EXPECT_THAT(own_tables(), IsEmpty());
  EXPECT_EQ(sh(*sandbox(), "echo others work").out, "others work\n");
}

TEST_F(FullNetworkTest, ARangeThatIsInUseIsRefused) {
  int uplink = internet().routes().link("up0")->index;
  auto theirs = *parse_ipv4("10.233.7.7");
  ASSERT_TRUE(internet().routes().add_host_route(uplink, theirs, *parse_ipv4(kMachine)));
  auto made = wait(engine()->create(networked()));
  ASSERT_TRUE(failed_with(made, Errc::unsupported));
  EXPECT_THAT(made.error().what, HasSubstr("10.233.7.7/32"));
  stop_engine();
  options().full_network->range = "198.18.0.0/16";
  EXPECT_TRUE(sandbox(networked()));
}

TEST_F(FullNetworkTest, OptionsThatMakeNoSenseAreRefused) {
  auto start_with = [&](FullNetworkOptions network) {
    EngineOptions own = options();
    own.full_network = std::move(network);
    asio::io_context context;
    return Engine::start(context.get_executor(), own);
  };
  FullNetworkOptions network;
  for (const char* range : {"8.8.8.0/24", "10.0.0.0/30", "10.233.0.1/16", "x", "fd00::/8"}) {
    network.range = range;
    EXPECT_TRUE(failed_with(start_with(network), Errc::invalid)) << range;
  }
  network = {};
  network.allow = {"10.0.0.0/8; drop"};
  EXPECT_TRUE(failed_with(start_with(network), Errc::invalid));
  network = {};
  network.resolvers = {"example.org"};
  EXPECT_TRUE(failed_with(start_with(network), Errc::invalid));
}

// ---- what is left
// --------------------------------------------------------------------------------

TEST_F(FullNetworkTest, NothingIsLeftOfWhatEnded) {
  std::string before = read_host_file("/proc/net/fib_trie");
  for (int i = 0; i < 10; ++i) {
    SandboxPtr one = sandbox(networked());
    SandboxPtr two = sandbox(networked());
    EXPECT_GE(own_links().size(), 2U);
    must(one->destroy());
    two.reset();  // Dropped, not destroyed.
  }
  EXPECT_TRUE(eventually([&] { return own_links().empty(); }));
  EXPECT_EQ(read_host_file("/proc/net/fib_trie"), before);
  EXPECT_THAT(own_tables(), HasSubstr("agent-sandbox-i-"));
  stop_engine();
  EXPECT_THAT(own_tables(), IsEmpty());
}

// Or the peers of one sandbox would go on with the next that has its address.
TEST_F(FullNetworkTest, ConnectionsAreForgottenWithTheirSandbox) {
  auto echo = internet().world(kUdp, kWeb, 7);
  SandboxPtr one = box();
  Ipv4 address = *parse_ipv4(address_of(*one));
  ASSERT_THAT(reach(*one, std::string("udp ") + kWeb + " 7"), StartsWith("reached"));
  EXPECT_EQ(*forget_connections_from(address), 1U);  // So there is one to be counted.
  EXPECT_EQ(*forget_connections_from(address), 0U);
  ASSERT_THAT(reach(*one, std::string("udp ") + kWeb + " 7"), StartsWith("reached"));
  must(one->destroy());
  ASSERT_TRUE(eventually([&] { return own_links().empty(); }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(*forget_connections_from(address), 0U);
}

TEST_F(FullNetworkTest, EnginesLeaveEachOthersRulesAlone) {
  auto web = internet().world(kTcp, kWeb, 80);
  auto hidden = internet().world(kTcp, "10.9.9.9", 80);
  SandboxPtr one = box();
  {
    EngineOptions other = options();
    other.runtime_dir = scratch() / "other";
    other.full_network->allow = {"10.9.9.9"};
    TestEngine second(other);
    SandboxPtr two = second.sandbox(networked());
    second.must(two->write_file(kTool, std::string(tool_image()), 0755));
    std::string reach_hidden = std::string(kTool) + " reach tcp 10.9.9.9 80";
    EXPECT_THAT(second.sh(*two, reach_hidden).out, StartsWith("reached"));
    EXPECT_THAT(reach(*one, "tcp 10.9.9.9 80"), StartsWith("unreached"));
    EXPECT_EQ(own_links().size(), 2U);
  }
  EXPECT_EQ(own_links().size(), 1U);
  EXPECT_THAT(reach(*one, std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
  EXPECT_THAT(reach(*one, "tcp 10.9.9.9 80"), StartsWith("unreached"));
}

TEST_F(FullNetworkTest, AKilledEngineIsCleanedUpAfter) {
  KeptVictim victim;
  EngineOptions theirs = options();
  theirs.instance = "-";
  EXPECT_EQ(victim.start(theirs, "loose_network", 3).size(), 3U);
  EXPECT_EQ(own_links().size(), 3U);
  ASSERT_TRUE(run_nft("table inet someone_elses {}"));
  victim.kill();
  EXPECT_THAT(own_tables(), HasSubstr("agent-sandbox-i-"));  // It outlives the engine.
  options().full_network.reset();
  EXPECT_EQ(engine()->recovery().instances, 1U);
  EXPECT_THAT(engine()->recovery().problems, IsEmpty());
  EXPECT_THAT(own_links(), IsEmpty());
  EXPECT_EQ(own_tables(), "table inet someone_elses\n");
  ASSERT_TRUE(run_nft("delete table inet someone_elses"));
}

TEST_F(FullNetworkTest, TheNextEngineFindsWhatWasKeptAtWork) {
  options().instance = "node";
  auto web = internet().world(kTcp, kWeb, 80);
  auto hidden = internet().world(kTcp, "10.9.9.9", 80);
  KeptVictim victim;
  std::vector<int> pids = victim.start(options(), "network", 1);
  EXPECT_EQ(own_links().size(), 2U);
  victim.kill();
  ASSERT_TRUE(process_lives(pids[0]));
  // Nobody is there, and it is filtered all the same.
  EXPECT_THAT(own_tables(), HasSubstr("agent-sandbox-i-node"));
  auto pidfd = open_pidfd(pids[0]);
  std::string said;
  ASSERT_TRUE(in_network_of(pidfd->get(), [&]() -> Result<void> {
    said = reach_unsandboxed(std::string("tcp ") + kWeb + " 80") +
           reach_unsandboxed("tcp 10.9.9.9 80");
    return {};
  }));
  EXPECT_THAT(said, StartsWith(std::string("reached ") + kMachine + "\nunreached"));

  std::vector<SandboxPtr> adopted = engine()->adopted();
  ASSERT_EQ(adopted.size(), 1U);
  EXPECT_THAT(engine()->recovery().problems, IsEmpty());
  EXPECT_EQ(own_links().size(), 1U);
  EXPECT_THAT(reach(*adopted[0], std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
  EXPECT_THAT(reach(*adopted[0], "tcp 10.9.9.9 80"), StartsWith("unreached"));
  EXPECT_NE(address_of(*box()), address_of(*adopted[0]));
  must(adopted[0]->destroy());
  EXPECT_TRUE(eventually([&] { return own_links().empty(); }));
}

TEST_F(FullNetworkTest, ALeftSandboxKeepsItsNetworkUnderAnEngineWithout) {
  options().instance = "node";
  auto web = internet().world(kTcp, kWeb, 80);
  auto hidden = internet().world(kTcp, "10.9.9.9", 80);
  {
    SandboxPtr one = box();
    must(one->keep("kept"));
    must(engine()->leave());
  }
  drop_engine();
  EXPECT_EQ(own_links().size(), 1U);
  options().full_network.reset();
  std::vector<SandboxPtr> adopted = engine()->adopted();
  ASSERT_EQ(adopted.size(), 1U);
  EXPECT_THAT(reach(*adopted[0], std::string("tcp ") + kWeb + " 80"), StartsWith("reached"));
  EXPECT_THAT(reach(*adopted[0], "tcp 10.9.9.9 80"), StartsWith("unreached"));
  EXPECT_TRUE(failed_with(wait(engine()->create(networked())), Errc::denied));
}

}  // namespace
}  // namespace asr::test
