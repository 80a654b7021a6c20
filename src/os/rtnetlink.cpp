#include "os/rtnetlink.hpp"

#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>

#include <optional>

namespace asr {

namespace {

std::optional<NetworkLink> link_in(std::string_view body) {
  auto info = netlink_header<ifinfomsg>(body);
  if (!info) return std::nullopt;
  NetworkLink link;
  link.index = info->ifi_index;
  link.name = netlink_attribute(body, sizeof *info, IFLA_IFNAME);
  if (!link.name.empty() && link.name.back() == '\0') link.name.pop_back();
  link.mtu = netlink_number(netlink_attribute(body, sizeof *info, IFLA_MTU));
  return link;
}

ifinfomsg link_header(int index, unsigned flags, unsigned change) {
  ifinfomsg info{};
  info.ifi_index = index;
  info.ifi_flags = flags;
  info.ifi_change = change;
  return info;
}

}  // namespace

Result<RouteSocket> RouteSocket::open() {
  return RouteSocket(TRY(NetlinkSocket::open(NETLINK_ROUTE)));
}

Result<void> RouteSocket::make_veth(const VethEnd& here, const VethEnd& there, int other,
                                    std::uint32_t mtu) {
  NetlinkMessage message(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
                         link_header(0, IFF_NOARP, IFF_NOARP));
  message.add(IFLA_IFNAME, here.name);
  message.add(IFLA_ADDRESS, here.mac.data(), here.mac.size());
  message.add(IFLA_MTU, mtu);
  message.nest(IFLA_LINKINFO, [&] {
    message.add(IFLA_INFO_KIND, std::string("veth"));
    message.nest(IFLA_INFO_DATA, [&] {
      message.nest(VETH_INFO_PEER, [&] {
        ifinfomsg peer = link_header(0, IFF_NOARP, IFF_NOARP);
        message.append(&peer, sizeof peer);
        message.add(IFLA_IFNAME, there.name);
        message.add(IFLA_ADDRESS, there.mac.data(), there.mac.size());
        message.add(IFLA_MTU, mtu);
        message.add(IFLA_NET_NS_FD, static_cast<std::uint32_t>(other));
      });
    });
  });
  return socket_.tell(message, "make network device " + here.name);
}

Result<void> RouteSocket::remove_link(const std::string& name) {
  NetlinkMessage message(RTM_DELLINK, NLM_F_ACK, link_header(0, 0, 0));
  message.add(IFLA_IFNAME, name);
  return socket_.tell(message, "remove network device " + name);
}

Result<void> RouteSocket::set_state(int link, LinkState state) {
  unsigned flags = state == LinkState::up ? static_cast<unsigned>(IFF_UP) : 0;
  NetlinkMessage message(RTM_NEWLINK, NLM_F_ACK, link_header(link, flags, IFF_UP));
  return socket_.tell(message, "change the state of a network device");
}

Result<NetworkLink> RouteSocket::link(const std::string& name) {
  NetlinkMessage message(RTM_GETLINK, NLM_F_ACK, link_header(0, 0, 0));
  message.add(IFLA_IFNAME, name);
  for (const std::string& body : TRY(socket_.ask(message, "find network device " + name)))
    if (auto found = link_in(body)) return *found;
  return fail(Errc::not_found, "there is no network device " + name);
}

Result<NetworkLink> RouteSocket::link(int index) {
  NetlinkMessage message(RTM_GETLINK, NLM_F_ACK, link_header(index, 0, 0));
  for (const std::string& body : TRY(socket_.ask(message, "find a network device")))
    if (auto found = link_in(body)) return *found;
  return fail(Errc::not_found, "there is no such network device");
}

Result<std::vector<NetworkLink>> RouteSocket::links() {
  NetlinkMessage message(RTM_GETLINK, NLM_F_DUMP, link_header(0, 0, 0));
  std::vector<NetworkLink> all;
  for (const std::string& body : TRY(socket_.ask(message, "list network devices")))
    if (auto found = link_in(body)) all.push_back(*std::move(found));
  return all;
}

Result<void> RouteSocket::add_address(int link, Ipv4 address) {
  ifaddrmsg header{};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = 32;
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(link);
  NetlinkMessage message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, header);
  message.add(IFA_LOCAL, address);
  message.add(IFA_ADDRESS, address);
  message.add(IFA_FLAGS, std::uint32_t{IFA_F_NOPREFIXROUTE});
  return socket_.tell(message, "add address " + to_string(address));
}

Result<void> RouteSocket::add_neighbour(int link, Ipv4 address, const MacAddress& mac) {
  ndmsg header{};
  header.ndm_family = AF_INET;
  header.ndm_ifindex = link;
  header.ndm_state = NUD_PERMANENT;
  NetlinkMessage message(RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, header);
  message.add(NDA_DST, address);
  message.add(NDA_LLADDR, mac.data(), mac.size());
  return socket_.tell(message, "add neighbour " + to_string(address));
}

namespace {

rtmsg route_header(unsigned prefix, unsigned scope) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = static_cast<unsigned char>(prefix);
  header.rtm_table = RT_TABLE_MAIN;
  header.rtm_protocol = RTPROT_STATIC;
  header.rtm_scope = static_cast<unsigned char>(scope);
  header.rtm_type = RTN_UNICAST;
  return header;
}

constexpr std::uint16_t kNewRoute = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

}  // namespace

Result<void> RouteSocket::add_host_route(int link, Ipv4 to, Ipv4 source) {
  NetlinkMessage message(RTM_NEWROUTE, kNewRoute, route_header(32, RT_SCOPE_LINK));
  message.add(RTA_DST, to);
  message.add(RTA_PREFSRC, source);
  message.add(RTA_OIF, static_cast<std::uint32_t>(link));
  return socket_.tell(message, "add route to " + to_string(to));
}

Result<void> RouteSocket::add_default_route(int link, Ipv4 gateway) {
  rtmsg header = route_header(0, RT_SCOPE_UNIVERSE);
  header.rtm_flags = RTNH_F_ONLINK;
  NetlinkMessage message(RTM_NEWROUTE, kNewRoute, header);
  message.add(RTA_GATEWAY, gateway);
  message.add(RTA_OIF, static_cast<std::uint32_t>(link));
  return socket_.tell(message, "add default route by " + to_string(gateway));
}

Result<std::vector<NetworkRoute>> RouteSocket::routes() {
  rtmsg header{};
  header.rtm_family = AF_INET;
  NetlinkMessage message(RTM_GETROUTE, NLM_F_DUMP, header);
  std::vector<NetworkRoute> all;
  for (const std::string& body : TRY(socket_.ask(message, "list routes"))) {
    auto found = netlink_header<rtmsg>(body);
    if (!found) continue;
    NetworkRoute route;
    route.to.prefix = found->rtm_dst_len;
    route.to.first = netlink_address(netlink_attribute(body, sizeof(rtmsg), RTA_DST));
    route.link = static_cast<int>(netlink_number(netlink_attribute(body, sizeof(rtmsg), RTA_OIF)));
    all.push_back(route);
  }
  return all;
}

Result<int> RouteSocket::way_to(Ipv4 address) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = 32;
  NetlinkMessage message(RTM_GETROUTE, NLM_F_ACK, header);
  message.add(RTA_DST, address);
  auto answers = socket_.ask(message, "find the way to " + to_string(address));
  if (!answers) return fail(Errc::not_found, answers.error().what);
  for (const std::string& body : *answers)
    if (std::uint32_t link = netlink_number(netlink_attribute(body, sizeof(rtmsg), RTA_OIF));
        link != 0)
      return static_cast<int>(link);
  return fail(Errc::not_found, "there is no way to " + to_string(address));
}

}  // namespace asr
