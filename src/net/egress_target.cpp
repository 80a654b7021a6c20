#include "net/egress_target.hpp"

#include <boost/url/parse.hpp>

namespace asr {

Result<ProxyTarget> parse_proxy_target(std::string_view target) {
  auto url = boost::urls::parse_absolute_uri(target);
  if (!url) return fail(Errc::invalid, "the address cannot be understood");
  if (!equal_ignoring_case(url->scheme(), "http"))
    return fail(Errc::invalid, "the proxy is asked for http:// addresses only",
                "https goes through CONNECT");
  if (!url->has_authority()) return fail(Errc::invalid, "the address names no host");
  if (url->has_userinfo()) return fail(Errc::invalid, "no user and password in an address");
  ProxyTarget out;
  std::string authority(url->encoded_authority());
  out.server = TRY(parse_authority(authority, 80));
  std::string path(url->encoded_path());
  if (url->has_query()) path += "?" + std::string(url->encoded_query());
  out.path = path.starts_with('/') ? std::move(path) : "/" + path;
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
