// Names and addresses of hosts in the one form in which they can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

// Whoever compares, resolves or certifies a host takes this form, never what somebody wrote.
struct HostName {
  std::string text;  // lower-case ASCII without a dot at its end, or 192.0.2.1, or 2001:db8::1
  bool is_address = false;

  friend bool operator==(const HostName&, const HostName&) = default;
};

// IDNA for what is not ASCII. Whatever some resolver would take for an address (decimal, octal,
// hex, fewer than four parts, IPv4 inside IPv6) becomes that address. Refuses underscores, empty
// and over-long labels, percent signs, zones and everything else that no host is called.
Result<HostName> canonical_host(std::string_view text);

// "host:port" with both, as CONNECT has it; an address of IPv6 in brackets.
struct HostAndPort {
  HostName host;
  std::uint16_t port = 0;

  friend bool operator==(const HostAndPort&, const HostAndPort&) = default;
};
Result<HostAndPort> parse_authority(std::string_view text);
// The same where the port may be missing, as in a Host header.
Result<HostAndPort> parse_authority(std::string_view text, std::uint16_t default_port);

// "name", "192.0.2.1" or "[2001:db8::1]".
std::string in_url(const HostName& host);

}  // namespace asr
