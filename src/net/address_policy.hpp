// Which addresses a server may talk to on behalf of somebody who only gave it a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace asr {

enum class Reach { public_only, anywhere };

// Of the public internet: not loopback, private, link-local, shared (CGNAT), documentation,
// multicast or reserved, whether written as IPv4, IPv6 or one inside the other.
bool is_public_address(std::string_view address);

// One of this machine's own, public or not: its services think they are among themselves.
bool is_own_address(std::string_view address);

// The addresses of `host`, every one of which is allowed; a name with one that is not is refused as
// a whole. Blocks.
Result<std::vector<std::string>> resolve_allowed(const std::string& host, std::uint16_t port,
                                                 Reach reach);

struct WebAddress {
  bool tls = true;
  std::string host;  // lower case; an address of IPv6 without its brackets
  std::uint16_t port = 443;
};
// http or https, without user and password.
Result<WebAddress> parse_web_address(std::string_view url);

}  // namespace asr
