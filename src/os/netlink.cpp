#include "os/netlink.hpp"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace asr {

namespace {

constexpr std::size_t kMostAnswer = 64 * 1024;

}  // namespace

void NetlinkMessage::begin(std::uint16_t type, std::uint16_t flags) {
  nlmsghdr head{};
  head.nlmsg_type = type;
  head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  append(&head, sizeof head);
}

void NetlinkMessage::append(const void* data, std::size_t size) {
  bytes_.append(static_cast<const char*>(data), size);
  bytes_.resize(NLMSG_ALIGN(bytes_.size()));
}

void NetlinkMessage::add(std::uint16_t type, const void* data, std::size_t size) {
  rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
  append(&head, sizeof head);
  if (size > 0) append(data, size);
}

void NetlinkMessage::add(std::uint16_t type, Ipv4 address) {
  add(type, std::uint32_t{::htonl(address.value)});
}

std::string_view NetlinkMessage::finish(std::uint32_t sequence) {
  auto size = static_cast<std::uint32_t>(bytes_.size());
  std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
  std::memcpy(bytes_.data() + offsetof(nlmsghdr, nlmsg_seq), &sequence, sizeof sequence);
  return bytes_;
}

Result<NetlinkSocket> NetlinkSocket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd) return fail_errno("open netlink socket");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind netlink socket");
  return NetlinkSocket(std::move(fd));
}

Result<std::vector<std::string>> NetlinkSocket::ask(NetlinkMessage& message,
                                                    const std::string& what) {
  std::string_view request = message.finish(++sequence_);
  // To the kernel: a socket that is not connected sends to it, and it alone answers.
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0) return fail_errno(what);
  std::vector<std::string> answers;
  std::string buffer(kMostAnswer, '\0');
  for (;;) {
    ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(what);
    std::string_view rest(buffer.data(), static_cast<std::size_t>(n));
    while (rest.size() >= NLMSG_HDRLEN) {
      auto head = *netlink_header<nlmsghdr>(rest);
      if (head.nlmsg_len < NLMSG_HDRLEN || head.nlmsg_len > rest.size()) break;
      std::string_view body = rest.substr(NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
      rest.remove_prefix(std::min(rest.size(), std::size_t{NLMSG_ALIGN(head.nlmsg_len)}));
      if (head.nlmsg_seq != sequence_) continue;
      if (head.nlmsg_type == NLMSG_DONE) return answers;
      if (head.nlmsg_type != NLMSG_ERROR) {
        answers.emplace_back(body);
        continue;
      }
      int err = -netlink_header<std::int32_t>(body).value_or(-EPROTO);
      if (err == 0) return answers;
      Error failed = errno_error(err, what);
      if (err == ENODEV || err == ENOENT) failed.code = Errc::not_found;
      return fail(std::move(failed));
    }
  }
}

Result<void> NetlinkSocket::tell(NetlinkMessage& message, const std::string& what) {
  TRY(ask(message, what));
  return {};
}

std::string_view netlink_attribute(std::string_view body, std::size_t header,
                                   std::uint16_t wanted) {
  body.remove_prefix(std::min(body.size(), std::size_t{NLMSG_ALIGN(header)}));
  while (body.size() >= sizeof(rtattr)) {
    auto head = *netlink_header<rtattr>(body);
    if (head.rta_len < sizeof head || head.rta_len > body.size()) break;
    if ((head.rta_type & NLA_TYPE_MASK) == wanted)
      return body.substr(sizeof head, head.rta_len - sizeof head);
    body.remove_prefix(std::min(body.size(), std::size_t{RTA_ALIGN(head.rta_len)}));
  }
  return {};
}

std::uint32_t netlink_number(std::string_view attribute) {
  std::uint32_t value = 0;
  if (attribute.size() == sizeof value) std::memcpy(&value, attribute.data(), sizeof value);
  return value;
}

Ipv4 netlink_address(std::string_view attribute) {
  return Ipv4{::ntohl(netlink_number(attribute))};
}

}  // namespace asr
