// N08, N09, N13: what a sandbox with a way to the internet must not reach, on a machine with an
// uplink and a world behind it that are the test's own.
#include <unistd.h>

#include <optional>

#include "harness.hpp"
#include "support/engine_fixture.hpp"
#include "support/small_internet.hpp"

namespace asr::escape {

namespace {

using test::kMachine;
using test::kMachineToo;
using test::kPrivateResolver;
using test::kPublicResolver;
using test::kWeb;
using test::Server;
constexpr auto kTcp = Server::Kind::tcp;
constexpr auto kUdp = Server::Kind::udp;

class NetworkEscapes : public Escape {
 protected:
  void SetUp() override {
    if (::geteuid() == 0) internet_.emplace();
    Escape::SetUp();
  }
  void TearDown() override {
    Escape::TearDown();
    internet_.reset();
  }
  EngineOptions options() override {
    EngineOptions own;
    own.runtime_dir = scratch_.path() / "run";
    own.full_network = FullNetworkOptions{};
    own.full_network->resolvers = {kPrivateResolver};
    return own;
  }
  static SandboxSpec networked() {
    SandboxSpec spec = standard();
    spec.network = Network::full;
    return spec;
  }

  // A server in the world, and how the probe finds it.
  std::string world(Server::Kind kind, const std::string& address, int port) {
    servers_.push_back(internet_->world(kind, address, port));
    return (kind == kTcp ? "tcp " : "udp ") + address + " " + std::to_string(port);
  }
  std::string machine(Server::Kind kind, const std::string& address, int port) {
    servers_.push_back(internet_->machine(kind, port, address));
    return (kind == kTcp ? "tcp " : "udp ") + address + " " + std::to_string(port);
  }
  int visitors() const {
    int all = 0;
    for (const auto& server : servers_) all += server->visitors();
    return all;
  }
  // Proven outside, held inside, and seen by no server.
  void refuse(const std::string& name, const Args& targets, const Args& needed = {}) {
    prove(name, targets);
    SandboxPtr sandbox = make(networked());
    int before = visitors();
    attack(sandbox, name, targets);
    must(visitors() == before, "a server was reached");
    Args works = {"needed"};
    works.insert(works.end(), needed.begin(), needed.end());
    if (!needed.empty()) attack(sandbox, name, works);
    servers_.clear();
  }

  test::ScratchDir scratch_;
  std::optional<test::SmallInternet> internet_;
  std::vector<std::unique_ptr<Server>> servers_;
};

TEST_F(NetworkEscapes, N08_NameServers) {
  begin("N08", "name servers of one's own choice");
  refuse("N08", {world(kUdp, kPublicResolver, 53), world(kTcp, kPublicResolver, 53)},
         {world(kUdp, kPrivateResolver, 53), world(kTcp, kPrivateResolver, 53)});
}

TEST_F(NetworkEscapes, N09_PrivateAddresses) {
  begin("N09", "the machine and what is private behind it");
  Args targets;
  for (const char* address :
       {"10.9.9.9", "172.16.3.4", "192.168.7.7", "169.254.169.254", "100.64.1.1", "198.18.0.9"})
    for (auto kind : {kTcp, kUdp}) targets.push_back(world(kind, address, 80));
  for (const char* address : {kMachine, kMachineToo})
    for (auto kind : {kTcp, kUdp}) targets.push_back(machine(kind, address, 9000));
  refuse("N09", targets, {world(kTcp, kWeb, 80), world(kUdp, kWeb, 7)});
}

TEST_F(NetworkEscapes, N13_OtherPackets) {
  begin("N13", "forged, broadcast and source-routed packets, other families");
  world(kUdp, kWeb, 7);
  machine(kUdp, "0.0.0.0", 7000);
  refuse("N13", {world(kUdp, "10.9.9.9", 80), "udp-broadcast 255.255.255.255 7000",
                 "udp-broadcast 224.0.0.1 7000", "udp-dontroute 10.233.0.1 7000",
                 std::string("udp-dontroute ") + kMachine + " 7000", "udp-dontroute 10.9.9.9 80",
                 std::string("udp-loopback-source ") + kWeb + " 7",
                 std::string("udp-forged-source ") + kWeb + " 7", "udp-source-route 10.9.9.9 80"});
  SandboxPtr sandbox = make(networked());
  attack(sandbox, "E26");  // Raw sockets and links, where there is one to use them on.
}

}  // namespace

}  // namespace asr::escape
