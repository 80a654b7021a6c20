#include "os/conntrack.hpp"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "os/netlink.hpp"

namespace asr {

namespace {

constexpr std::uint32_t kBySource = 1;  // the kernel's CTA_FILTER_F_CTA_IP_SRC

constexpr std::uint16_t type_of(unsigned message) {
  return static_cast<std::uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | message);
}

constexpr std::uint16_t nested(unsigned type) {
  return static_cast<std::uint16_t>(type | NLA_F_NESTED);
}

nfgenmsg header() {
  nfgenmsg head{};
  head.nfgen_family = AF_INET;
  head.version = NFNETLINK_V0;
  return head;
}

}  // namespace

Result<unsigned> forget_connections_from(Ipv4 source) {
  NetlinkSocket socket = TRY(NetlinkSocket::open(NETLINK_NETFILTER));
  NetlinkMessage listing(type_of(IPCTNL_MSG_CT_GET), NLM_F_DUMP, header());
  listing.nest(nested(CTA_TUPLE_ORIG), [&] {
    listing.nest(nested(CTA_TUPLE_IP), [&] { listing.add(CTA_IP_V4_SRC, source); });
  });
  listing.nest(nested(CTA_FILTER), [&] {
    listing.add(CTA_FILTER_ORIG_FLAGS, kBySource);
    listing.add(CTA_FILTER_REPLY_FLAGS, std::uint32_t{0});
  });
  unsigned forgotten = 0;
  for (const std::string& body : TRY(socket.ask(listing, "list connections"))) {
    std::string_view tuple = netlink_attribute(body, sizeof(nfgenmsg), CTA_TUPLE_ORIG);
    std::string_view id = netlink_attribute(body, sizeof(nfgenmsg), CTA_ID);
    std::string_view addresses = netlink_attribute(tuple, 0, CTA_TUPLE_IP);
    // An older kernel takes no notice of the filter.
    if (netlink_address(netlink_attribute(addresses, 0, CTA_IP_V4_SRC)) != source) continue;
    NetlinkMessage removal(type_of(IPCTNL_MSG_CT_DELETE), NLM_F_ACK, header());
    removal.add(nested(CTA_TUPLE_ORIG), tuple.data(), tuple.size());
    removal.add(CTA_ID, id.data(), id.size());
    if (socket.tell(removal, "forget a connection")) ++forgotten;
  }
  return forgotten;
}

}  // namespace asr
