#include "os/rtnetlink.hpp"

#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>

namespace asr {

// A request that grows attribute by attribute.
class RouteSocket::Message {
 public:
  template <class Header>
  Message(std::uint16_t type, std::uint16_t flags, const Header& header) : bytes_(NLMSG_HDRLEN, 0) {
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    std::memcpy(bytes_.data(), &head, sizeof head);
    append(&header, sizeof header);
  }

  void append(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  void add(std::uint16_t type, const void* data, std::size_t size) {
    rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
    append(&head, sizeof head);
    append(data, size);
  }
  void add(std::uint16_t type, std::uint32_t value) { add(type, &value, sizeof value); }
  void add(std::uint16_t type, const std::string& text) {
    add(type, text.c_str(), text.size() + 1);
  }
  void add(std::uint16_t type, Ipv4 address) { add(type, ::htonl(address.value)); }
  void add(std::uint16_t type, const MacAddress& mac) { add(type, mac.data(), mac.size()); }

  // What `fill` adds lies in an attribute of this type.
  template <class Fill>
  void nest(std::uint16_t type, Fill fill) {
    std::size_t at = bytes_.size();
    add(type, nullptr, 0);
    fill();
    auto size = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
  }

  std::string_view finish(std::uint32_t sequence) {
    auto size = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
    std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence, sizeof sequence);
    return bytes_;
  }

 private:
  std::string bytes_;
};

namespace {

constexpr std::size_t kMostAnswer = 64 * 1024;

template <class Header>
std::optional<Header> header_of(std::string_view body) {
  Header header;
  if (body.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, body.data(), sizeof header);
  return header;
}

// The value of an attribute that follows a header of this size; empty if there is none.
std::string_view attribute(std::string_view body, std::size_t header, std::uint16_t wanted) {
  body.remove_prefix(std::min(body.size(), std::size_t{NLMSG_ALIGN(header)}));
  while (body.size() >= sizeof(rtattr)) {
    rtattr head;
    std::memcpy(&head, body.data(), sizeof head);
    if (head.rta_len < sizeof head || head.rta_len > body.size()) break;
    if (head.rta_type == wanted) return body.substr(sizeof head, head.rta_len - sizeof head);
    body.remove_prefix(std::min(body.size(), std::size_t{RTA_ALIGN(head.rta_len)}));
  }
  return {};
}

std::uint32_t number_in(std::string_view attribute) {
  std::uint32_t value = 0;
  if (attribute.size() == sizeof value) std::memcpy(&value, attribute.data(), sizeof value);
  return value;
}

std::optional<Link> link_in(std::string_view body) {
  auto info = header_of<ifinfomsg>(body);
  if (!info) return std::nullopt;
  Link link;
  link.index = info->ifi_index;
  link.name = attribute(body, sizeof *info, IFLA_IFNAME);
  if (!link.name.empty() && link.name.back() == '\0') link.name.pop_back();
  link.mtu = number_in(attribute(body, sizeof *info, IFLA_MTU));
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
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return fail_errno("open netlink socket");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind netlink socket");
  return RouteSocket(std::move(fd));
}

// The bodies of all answers. The kernel is the only one who can write to this socket.
Result<std::vector<std::string>> RouteSocket::ask(Message& message, const std::string& what) {
  std::string_view request = message.finish(++sequence_);
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0) return fail_errno(what);
  std::vector<std::string> answers;
  std::string buffer(kMostAnswer, '\0');
  for (;;) {
    ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(what);
    std::string_view rest(buffer.data(), static_cast<std::size_t>(n));
    while (rest.size() >= NLMSG_HDRLEN) {
      nlmsghdr head;
      std::memcpy(&head, rest.data(), sizeof head);
      if (head.nlmsg_len < NLMSG_HDRLEN || head.nlmsg_len > rest.size()) break;
      std::string_view body = rest.substr(NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
      rest.remove_prefix(std::min(rest.size(), std::size_t{NLMSG_ALIGN(head.nlmsg_len)}));
      if (head.nlmsg_seq != sequence_) continue;
      if (head.nlmsg_type == NLMSG_DONE) return answers;
      if (head.nlmsg_type == NLMSG_ERROR) {
        auto error = header_of<std::int32_t>(body);
        if (error && *error == 0) return answers;
        Error failed = errno_error(error ? -*error : EPROTO, what);
        if (error && *error == -ENODEV) failed.code = Errc::not_found;
        return fail(std::move(failed));
      }
      answers.emplace_back(body);
    }
  }
}

Result<void> RouteSocket::tell(Message& message, const std::string& what) {
  TRY(ask(message, what));
  return {};
}

Result<void> RouteSocket::make_veth(const VethEnd& here, const VethEnd& there, int other,
                                    std::uint32_t mtu) {
  Message message(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
                  link_header(0, IFF_NOARP, IFF_NOARP));
  message.add(IFLA_IFNAME, here.name);
  message.add(IFLA_ADDRESS, here.mac);
  message.add(IFLA_MTU, mtu);
  message.nest(IFLA_LINKINFO, [&] {
    message.add(IFLA_INFO_KIND, std::string("veth"));
    message.nest(IFLA_INFO_DATA, [&] {
      message.nest(VETH_INFO_PEER, [&] {
        ifinfomsg peer = link_header(0, IFF_NOARP, IFF_NOARP);
        message.append(&peer, sizeof peer);
        message.add(IFLA_IFNAME, there.name);
        message.add(IFLA_ADDRESS, there.mac);
        message.add(IFLA_MTU, mtu);
        message.add(IFLA_NET_NS_FD, static_cast<std::uint32_t>(other));
      });
    });
  });
  return tell(message, "make network device " + here.name);
}

Result<void> RouteSocket::remove_link(const std::string& name) {
  Message message(RTM_DELLINK, NLM_F_ACK, link_header(0, 0, 0));
  message.add(IFLA_IFNAME, name);
  return tell(message, "remove network device " + name);
}

Result<void> RouteSocket::set_state(int link, LinkState state) {
  unsigned flags = state == LinkState::up ? static_cast<unsigned>(IFF_UP) : 0;
  Message message(RTM_NEWLINK, NLM_F_ACK, link_header(link, flags, IFF_UP));
  return tell(message, "change the state of a network device");
}

Result<Link> RouteSocket::link(const std::string& name) {
  Message message(RTM_GETLINK, NLM_F_ACK, link_header(0, 0, 0));
  message.add(IFLA_IFNAME, name);
  for (const std::string& body : TRY(ask(message, "find network device " + name)))
    if (auto found = link_in(body)) return *found;
  return fail(Errc::not_found, "there is no network device " + name);
}

Result<Link> RouteSocket::link(int index) {
  Message message(RTM_GETLINK, NLM_F_ACK, link_header(index, 0, 0));
  for (const std::string& body : TRY(ask(message, "find a network device")))
    if (auto found = link_in(body)) return *found;
  return fail(Errc::not_found, "there is no such network device");
}

Result<std::vector<Link>> RouteSocket::links() {
  Message message(RTM_GETLINK, NLM_F_DUMP, link_header(0, 0, 0));
  std::vector<Link> all;
  for (const std::string& body : TRY(ask(message, "list network devices")))
    if (auto found = link_in(body)) all.push_back(*std::move(found));
  return all;
}

Result<void> RouteSocket::add_address(int link, Ipv4 address) {
  ifaddrmsg header{};
  header.ifa_family = AF_INET;
  header.ifa_prefixlen = 32;
  header.ifa_scope = RT_SCOPE_UNIVERSE;
  header.ifa_index = static_cast<std::uint32_t>(link);
  Message message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, header);
  message.add(IFA_LOCAL, address);
  message.add(IFA_ADDRESS, address);
  message.add(IFA_FLAGS, std::uint32_t{IFA_F_NOPREFIXROUTE});
  return tell(message, "add address " + to_string(address));
}

Result<void> RouteSocket::add_neighbour(int link, Ipv4 address, const MacAddress& mac) {
  ndmsg header{};
  header.ndm_family = AF_INET;
  header.ndm_ifindex = link;
  header.ndm_state = NUD_PERMANENT;
  Message message(RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, header);
  message.add(NDA_DST, address);
  message.add(NDA_LLADDR, mac);
  return tell(message, "add neighbour " + to_string(address));
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
  Message message(RTM_NEWROUTE, kNewRoute, route_header(32, RT_SCOPE_LINK));
  message.add(RTA_DST, to);
  message.add(RTA_PREFSRC, source);
  message.add(RTA_OIF, static_cast<std::uint32_t>(link));
  return tell(message, "add route to " + to_string(to));
}

Result<void> RouteSocket::add_default_route(int link, Ipv4 gateway) {
  rtmsg header = route_header(0, RT_SCOPE_UNIVERSE);
  header.rtm_flags = RTNH_F_ONLINK;
  Message message(RTM_NEWROUTE, kNewRoute, header);
  message.add(RTA_GATEWAY, gateway);
  message.add(RTA_OIF, static_cast<std::uint32_t>(link));
  return tell(message, "add default route by " + to_string(gateway));
}

Result<int> RouteSocket::way_to(Ipv4 address) {
  rtmsg header{};
  header.rtm_family = AF_INET;
  header.rtm_dst_len = 32;
  Message message(RTM_GETROUTE, NLM_F_ACK, header);
  message.add(RTA_DST, address);
  auto answers = ask(message, "find the way to " + to_string(address));
  if (!answers) return fail(Errc::not_found, answers.error().what);
  for (const std::string& body : *answers)
    if (std::uint32_t link = number_in(attribute(body, sizeof(rtmsg), RTA_OIF)); link != 0)
      return static_cast<int>(link);
  return fail(Errc::not_found, "there is no way to " + to_string(address));
}

}  // namespace asr
