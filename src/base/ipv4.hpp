// Addresses and networks of IPv4, as values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

struct Ipv4 {
  std::uint32_t value = 0;  // in the machine's byte order

  friend auto operator<=>(const Ipv4&, const Ipv4&) = default;
};

struct Ipv4Network {
  Ipv4 first;
  unsigned prefix = 32;

  bool contains(Ipv4 address) const noexcept;
  bool contains(const Ipv4Network& other) const noexcept;
  std::uint64_t size() const noexcept { return 1ULL << (32 - prefix); }

  friend auto operator<=>(const Ipv4Network&, const Ipv4Network&) = default;
};

// Four decimal numbers and nothing else: no short, octal or hexadecimal forms.
Result<Ipv4> parse_ipv4(std::string_view text);
// "10.1.2.0/24", or an address for a network of one. Bits beyond the prefix are an error.
Result<Ipv4Network> parse_ipv4_network(std::string_view text);
std::string to_string(Ipv4 address);
std::string to_string(const Ipv4Network& network);

}  // namespace asr
