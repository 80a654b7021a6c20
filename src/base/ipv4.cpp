#include "base/ipv4.hpp"

#include <charconv>
#include <optional>

namespace asr {

namespace {

std::uint32_t mask(unsigned prefix) { return prefix == 0 ? 0 : ~0U << (32 - prefix); }

std::optional<std::uint32_t> number(std::string_view text, std::uint32_t most) {
  std::uint32_t value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool zero_first = text.size() > 1 && text[0] == '0';
  if (ec != std::errc() || end != text.data() + text.size() || zero_first || value > most)
    return std::nullopt;
  return value;
}

}  // namespace

bool Ipv4Network::contains(Ipv4 address) const noexcept {
  return (address.value & mask(prefix)) == first.value;
}

bool Ipv4Network::contains(const Ipv4Network& other) const noexcept {
  return other.prefix >= prefix && contains(other.first);
}

Result<Ipv4> parse_ipv4(std::string_view text) {
  Ipv4 address;
  std::string_view rest = text;
  for (int part = 0; part < 4; ++part) {
    std::size_t end = part < 3 ? rest.find('.') : rest.size();
    auto value = end == std::string_view::npos ? std::nullopt : number(rest.substr(0, end), 255);
    if (!value)
      return fail(Errc::invalid, std::string(text) + " is not an IPv4 address",
                  "write it as 192.0.2.1");
    address.value = address.value << 8 | *value;
    rest.remove_prefix(part < 3 ? end + 1 : end);
  }
  return address;
}

Result<Ipv4Network> parse_ipv4_network(std::string_view text) {
  std::size_t slash = text.find('/');
  Ipv4Network network;
  network.first = TRY(parse_ipv4(text.substr(0, slash)));
  if (slash == std::string_view::npos) return network;
  auto prefix = number(text.substr(slash + 1), 32);
  if (!prefix || (network.first.value & ~mask(*prefix)) != 0)
    return fail(Errc::invalid, std::string(text) + " is not an IPv4 network",
                "write it as 10.1.2.0/24");
  network.prefix = *prefix;
  return network;
}

std::string to_string(Ipv4 address) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8)
    text += std::to_string(address.value >> shift & 255) + (shift > 0 ? "." : "");
  return text;
}

std::string to_string(const Ipv4Network& network) {
  return to_string(network.first) + "/" + std::to_string(network.prefix);
}

}  // namespace asr
