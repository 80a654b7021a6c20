// Links, addresses, neighbours and routes of one network namespace.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ipv4.hpp"
#include "base/result.hpp"
#include "os/netlink.hpp"

namespace asr {

using MacAddress = std::array<std::uint8_t, 6>;

struct NetworkLink {
  int index = 0;
  std::string name;
  std::uint32_t mtu = 0;
};

// One end of a pair.
struct VethEnd {
  std::string name;
  MacAddress mac{};
};

struct NetworkRoute {
  Ipv4Network to;
  int link = 0;  // 0: none, or several
};

enum class LinkState { down, up };

class RouteSocket {
 public:
  // For the namespace of the calling thread, wherever it is used later.
  static Result<RouteSocket> open();

  // Both ends without ARP, for addresses given by add_neighbour(). The second lies in the namespace
  // `other` from the first moment.
  Result<void> make_veth(const VethEnd& here, const VethEnd& there, int other, std::uint32_t mtu);
  Result<void> remove_link(const std::string& name);  // not_found if there is none
  Result<void> set_state(int link, LinkState state);
  Result<NetworkLink> link(const std::string& name);
  Result<NetworkLink> link(int index);
  Result<std::vector<NetworkLink>> links();

  // An address that brings no route with it.
  Result<void> add_address(int link, Ipv4 address);
  Result<void> add_neighbour(int link, Ipv4 address, const MacAddress& mac);
  // A route to one address that this link leads to directly. Conflict if there is one already.
  Result<void> add_host_route(int link, Ipv4 to, Ipv4 source);
  Result<void> add_default_route(int link, Ipv4 gateway);
  Result<std::vector<NetworkRoute>> routes();  // of every table
  // The link by which packets to `address` would leave; not_found if there is no way.
  Result<int> way_to(Ipv4 address);

 private:
  explicit RouteSocket(NetlinkSocket socket) : socket_(std::move(socket)) {}

  NetlinkSocket socket_;
};

}  // namespace asr
