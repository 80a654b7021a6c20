#include "net/host_name.hpp"

#include <arpa/inet.h>
#include <idn2.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

namespace asr {

namespace {

constexpr std::size_t kLongestInput = 1024;
constexpr std::size_t kLongestName = 253;
constexpr std::size_t kLongestLabel = 63;

auto bad(const char* what) {
  return fail(Errc::invalid, std::string("no name of a host: ") + what,
              "write it as example.org, 192.0.2.1 or [2001:db8::1]");
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::vector<std::string_view> labels_of(std::string_view name) {
  std::vector<std::string_view> labels;
  for (;;) {
    std::size_t dot = std::min(name.find('.'), name.size());
    labels.push_back(name.substr(0, dot));
    if (dot == name.size()) return labels;
    name.remove_prefix(dot + 1);
  }
}

HostName address_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return {text, true};
}

Result<HostName> parse_v6(const std::string& text) {
  in6_addr address{};
  if (::inet_pton(AF_INET6, text.c_str(), &address) != 1) return bad("malformed address");
  // The same host over the same protocol: the kernel connects by IPv4.
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    in_addr inner{};
    std::copy(address.s6_addr + 12, address.s6_addr + 16,
              reinterpret_cast<unsigned char*>(&inner.s_addr));
    return address_of(inner);
  }
  char out[INET6_ADDRSTRLEN];
  ::inet_ntop(AF_INET6, &address, out, sizeof out);
  return HostName{out, true};
}

// One part of an address as inet_aton() reads it.
std::optional<std::uint64_t> number_of(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.starts_with('0')) {
    base = 8;
    text.remove_prefix(1);
  }
  std::uint64_t value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool looks_numeric(std::string_view label) {
  return std::all_of(label.begin(), label.end(), is_digit) || label.starts_with("0x");
}

// A name whose last label is a number is an address to somebody, or nothing.
Result<HostName> parse_v4(const std::vector<std::string_view>& parts) {
  if (parts.size() > 4) return bad("malformed address");
  std::uint64_t address = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto value = number_of(parts[i]);
    bool last = i + 1 == parts.size();
    std::uint64_t most = last ? (1ULL << (8 * (5 - parts.size()))) - 1 : 255;
    if (!value || *value > most) return bad("malformed address");
    address |= last ? *value : *value << (8 * (3 - i));
  }
  return address_of(in_addr{htonl(static_cast<std::uint32_t>(address))});
}

Result<std::string> to_ascii(const std::string& text) {
  char* raw = nullptr;
  int code = ::idn2_to_ascii_8z(text.c_str(), &raw,
                                IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL | IDN2_USE_STD3_ASCII_RULES);
  std::unique_ptr<char, void (*)(void*)> out(raw, ::idn2_free);
  if (code != IDN2_OK) return bad(::idn2_strerror(code));
  return std::string(raw);
}

// Punycode must mean something, and be the way that something is written.
Result<void> check_punycode(const std::string& label) {
  char* raw = nullptr;
  int code = ::idn2_to_unicode_8z8z(label.c_str(), &raw, IDN2_NONTRANSITIONAL);
  std::unique_ptr<char, void (*)(void*)> out(raw, ::idn2_free);
  if (code != IDN2_OK) return bad(::idn2_strerror(code));
  if (TRY(to_ascii(raw)) != label) return bad("not the usual spelling");
  return {};
}

Result<void> check_label(std::string_view label) {
  if (label.empty()) return bad("an empty label");
  if (label.size() > kLongestLabel) return bad("a label of more than 63 characters");
  if (label.front() == '-' || label.back() == '-') return bad("a label begins or ends with -");
  for (char c : label)
    if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-') return bad("a character nobody uses");
  if (label.starts_with("xn--")) TRY(check_punycode(std::string(label)));
  return {};
}

Result<std::uint16_t> parse_port(std::string_view text) {
  unsigned port = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || text.size() > 5 || !is_digit(text[0]) || ec != std::errc() ||
      end != text.data() + text.size() || port == 0 || port > 65535)
    return fail(Errc::invalid, "no port", "a number from 1 to 65535");
  return static_cast<std::uint16_t>(port);
}

}  // namespace

Result<HostName> canonical_host(std::string_view text) {
  if (text.empty() || text.size() > kLongestInput) return bad("empty or too long");
  if (text.find('\0') != std::string_view::npos) return bad("a zero byte");
  if (text.starts_with('[')) {
    if (!text.ends_with(']') || text.size() < 4) return bad("brackets without an address");
    return parse_v6(std::string(text.substr(1, text.size() - 2)));
  }
  if (text.find(':') != std::string_view::npos) return parse_v6(std::string(text));
  std::string name(text);
  if (std::any_of(name.begin(), name.end(), [](char c) { return (c & 0x80) != 0; }))
    name = TRY(to_ascii(name));
  std::transform(name.begin(), name.end(), name.begin(), lower);
  if (name.ends_with('.')) name.pop_back();
  if (name.size() > kLongestName) return bad("more than 253 characters");
  auto labels = labels_of(name);
  for (std::string_view label : labels) TRY(check_label(label));
  if (looks_numeric(labels.back())) return parse_v4(labels);
  return HostName{std::move(name), false};
}

Result<HostAndPort> parse_authority(std::string_view text) {
  std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.ends_with(']'))
    return fail(Errc::invalid, "the port is missing", "write it as example.org:443");
  std::string_view host = text.substr(0, colon);
  // Without brackets a second colon could be read as the end of the name.
  if (!host.starts_with('[') && host.find(':') != std::string_view::npos)
    return bad("more than one colon");
  // One after the other: what leaves from between the braces leaks what stands before it.
  HostAndPort out;
  out.host = TRY(canonical_host(host));
  out.port = TRY(parse_port(text.substr(colon + 1)));
  return out;
}

Result<HostAndPort> parse_authority(std::string_view text, std::uint16_t default_port) {
  std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && !text.ends_with(']')) return parse_authority(text);
  HostAndPort out;
  out.host = TRY(canonical_host(text));
  out.port = default_port;
  return out;
}

std::string in_url(const HostName& host) {
  return host.text.find(':') == std::string::npos ? host.text : "[" + host.text + "]";
}

}  // namespace asr
