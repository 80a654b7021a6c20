#include "net/egress_target.hpp"

#include <algorithm>

namespace asr {

// By hand: Boost.URL 1.81 stops the process over some addresses that are none ("htt:\x0f").
Result<ProxyTarget> parse_proxy_target(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (!equal_ignoring_case(target.substr(0, kScheme.size()), kScheme))
    return fail(Errc::invalid, "the proxy is asked for http:// addresses only",
                "https goes through CONNECT");
  target.remove_prefix(kScheme.size());
  for (char c : target)
    if (c <= 0x20 || c >= 0x7f || c == '#' || c == '\\')
      return fail(Errc::invalid, "the address has characters that must be escaped");
  std::size_t end = std::min(target.find_first_of("/?"), target.size());
  std::string_view authority = target.substr(0, end);
  if (authority.find('@') != std::string_view::npos)
    return fail(Errc::invalid, "no user and password in an address");
  ProxyTarget out;
  out.server = TRY(parse_authority(authority, 80));
  std::string_view path = target.substr(end);
  out.path = (path.starts_with('/') ? "" : "/") + std::string(path);
  return out;
}

Result<void> check_host(const Headers& headers, const HostAndPort& server,
                        std::uint16_t default_port) {
  if (!headers.has("host")) return {};
  auto named = parse_authority(headers.get("host"), default_port);
  if (named && *named == server) return {};
  return fail(Errc::invalid, "Host names another server than the address does");
}

std::string host_header(const HostAndPort& server, std::uint16_t default_port) {
  std::string host = in_url(server.host);
  return server.port == default_port ? host : host + ":" + std::to_string(server.port);
}

}  // namespace asr
