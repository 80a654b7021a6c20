#include "net/address_policy.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/url/parse.hpp>
#include <memory>

namespace asr {

namespace {

namespace ip = boost::asio::ip;

bool is_public_v4(const ip::address_v4& address) {
  // RFC 6890 and its relatives.
  static const std::array kNot{
      ip::make_network_v4("0.0.0.0/8"),       ip::make_network_v4("10.0.0.0/8"),
      ip::make_network_v4("100.64.0.0/10"),   ip::make_network_v4("127.0.0.0/8"),
      ip::make_network_v4("169.254.0.0/16"),  ip::make_network_v4("172.16.0.0/12"),
      ip::make_network_v4("192.0.0.0/24"),    ip::make_network_v4("192.0.2.0/24"),
      ip::make_network_v4("192.31.196.0/24"), ip::make_network_v4("192.52.193.0/24"),
      ip::make_network_v4("192.88.99.0/24"),  ip::make_network_v4("192.168.0.0/16"),
      ip::make_network_v4("192.175.48.0/24"), ip::make_network_v4("198.18.0.0/15"),
      ip::make_network_v4("198.51.100.0/24"), ip::make_network_v4("203.0.113.0/24"),
      ip::make_network_v4("224.0.0.0/4"),     ip::make_network_v4("240.0.0.0/4")};
  for (const auto& network : kNot)
    if ((address.to_uint() & network.netmask().to_uint()) == network.network().to_uint())
      return false;
  return true;
}

bool is_public_v6(const ip::address_v6& address) {
  auto bytes = address.to_bytes();
  auto inner = [&](std::size_t at) {
    return ip::address_v4({bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]});
  };
  if (address.is_v4_mapped()) return is_public_v4(inner(12));
  if (bytes[0] == 0x00 && bytes[1] == 0x64 && bytes[2] == 0xff && bytes[3] == 0x9b) return false;
  if (bytes[0] == 0x20 && bytes[1] == 0x02) return is_public_v4(inner(2));     // 6to4
  if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] <= 0x01) return false;  // Teredo and kin
  if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0x0d && bytes[3] == 0xb8) return false;
  return (bytes[0] & 0xe0) == 0x20;  // Only global unicast is given out at all.
}

}  // namespace

bool is_public_address(std::string_view text) {
  boost::system::error_code ec;
  ip::address address = ip::make_address(std::string(text), ec);
  if (ec) return false;
  return address.is_v4() ? is_public_v4(address.to_v4()) : is_public_v6(address.to_v6());
}

bool is_own_address(std::string_view text) {
  boost::system::error_code ec;
  ip::address address = ip::make_address(std::string(text), ec);
  if (ec) return false;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = ip::make_address_v4(ip::v4_mapped, address.to_v6());
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return true;  // Who cannot tell says no.
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(raw, ::freeifaddrs);
  for (const ifaddrs* each = raw; each; each = each->ifa_next) {
    if (!each->ifa_addr) continue;
    if (each->ifa_addr->sa_family == AF_INET && address.is_v4()) {
      const auto* own = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      if (ntohl(own->sin_addr.s_addr) == address.to_v4().to_uint()) return true;
    }
    if (each->ifa_addr->sa_family == AF_INET6 && address.is_v6()) {
      const auto* own = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      ip::address_v6::bytes_type bytes = address.to_v6().to_bytes();
      if (std::equal(bytes.begin(), bytes.end(), own->sin6_addr.s6_addr)) return true;
    }
  }
  return false;
}

namespace {

// These lead to this machine (RFC 6761), whatever a name service says, or where there is none.
bool is_localhost(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  return host == "localhost" || host.ends_with(".localhost");
}

}  // namespace

Result<std::vector<std::string>> resolve_allowed(const std::string& host, std::uint16_t port,
                                                 Reach reach) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  const char* name = is_localhost(host) ? "127.0.0.1" : host.c_str();
  int problem = ::getaddrinfo(name, std::to_string(port).c_str(), &hints, &raw);
  if (problem != 0)
    return fail(Errc::not_found, "cannot find " + host + ": " + ::gai_strerror(problem));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(raw, ::freeaddrinfo);
  std::vector<std::string> addresses;
  for (addrinfo* each = raw; each; each = each->ai_next) {
    char text[NI_MAXHOST];
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) != 0)
      continue;
    if (reach == Reach::public_only && !is_public_address(text))
      return fail(Errc::denied, host + " leads to " + text + ", which is not public",
                  "an operator can allow private addresses");
    addresses.emplace_back(text);
  }
  if (addresses.empty()) return fail(Errc::not_found, "cannot find " + host);
  return addresses;
}

Result<WebAddress> parse_web_address(std::string_view text) {
  auto bad = [](const char* what) {
    return fail(Errc::invalid, what, "write it as https://example.org/path");
  };
  // Boost.URL 1.81 stops the process over some texts that are no addresses, such as "http:\x0f".
  if (!text.starts_with("http://") && !text.starts_with("https://"))
    return bad("only http and https");
  constexpr std::string_view kMarks = "-._~:/?#[]@!$&'()*+,;=%";
  for (char c : text)
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
        kMarks.find(c) == std::string_view::npos)
      return bad("the address has characters that must be escaped");
  auto url = boost::urls::parse_uri(text);
  if (!url) return bad("this is no address of the web");
  if (url->has_userinfo()) return bad("no user and password in an address");
  WebAddress address;
  address.tls = url->scheme() == "https";
  address.host = url->host_address();
  for (char& c : address.host)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  if (address.host.empty()) return bad("the address names no host");
  address.port = address.tls ? 443 : 80;
  if (url->has_port()) {
    if (url->port_number() == 0) return bad("that port does not exist");
    address.port = url->port_number();
  }
  return address;
}

}  // namespace asr
