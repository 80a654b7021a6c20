// Requests to the kernel over netlink, and its answers: what the families have in common.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ipv4.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// A request that grows attribute by attribute.
class NetlinkMessage {
 public:
  // `flags` beside NLM_F_REQUEST; one of NLM_F_ACK and NLM_F_DUMP is among them.
  template <class Header>
  NetlinkMessage(std::uint16_t type, std::uint16_t flags, const Header& header) {
    begin(type, flags);
    append(&header, sizeof header);
  }

  void append(const void* data, std::size_t size);
  void add(std::uint16_t type, const void* data, std::size_t size);
  void add(std::uint16_t type, std::uint32_t value) { add(type, &value, sizeof value); }
  void add(std::uint16_t type, const std::string& text) {
    add(type, text.c_str(), text.size() + 1);
  }
  void add(std::uint16_t type, Ipv4 address);

  // What `fill` adds lies in an attribute of this type.
  template <class Fill>
  void nest(std::uint16_t type, Fill fill) {
    std::size_t at = bytes_.size();
    add(type, nullptr, 0);
    fill();
    auto size = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
  }

  std::string_view finish(std::uint32_t sequence);

 private:
  void begin(std::uint16_t type, std::uint16_t flags);

  std::string bytes_;
};

class NetlinkSocket {
 public:
  // For the network namespace of the calling thread, wherever it is used later.
  static Result<NetlinkSocket> open(int protocol);

  // The bodies of all answers. ENODEV and ENOENT come back as Errc::not_found.
  Result<std::vector<std::string>> ask(NetlinkMessage& message, const std::string& what);
  Result<void> tell(NetlinkMessage& message, const std::string& what);

 private:
  explicit NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::uint32_t sequence_ = 0;
};

// The header at the beginning of an answer.
template <class Header>
std::optional<Header> netlink_header(std::string_view body) {
  Header header;
  if (body.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, body.data(), sizeof header);
  return header;
}

// The value of an attribute, among those that follow a header of this size; empty if there is none.
std::string_view netlink_attribute(std::string_view body, std::size_t header, std::uint16_t wanted);
std::uint32_t netlink_number(std::string_view attribute);
Ipv4 netlink_address(std::string_view attribute);

}  // namespace asr
