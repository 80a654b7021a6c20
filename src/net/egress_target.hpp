// What a program asks a proxy for, read so that no server can take it for something else.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/host_name.hpp"
#include "net/http.hpp"

namespace asr {

struct ProxyTarget {
  HostAndPort server;
  std::string path;  // and query; begins with /
};

// "http://host:port/path?query". https goes through CONNECT.
Result<ProxyTarget> parse_proxy_target(std::string_view target);

// Two names for one request would be one for us and another for the server.
Result<void> check_host(const Headers& headers, const HostAndPort& server,
                        std::uint16_t default_port);

// What Host says where `default_port` needs no word.
std::string host_header(const HostAndPort& server, std::uint16_t default_port);

}  // namespace asr
