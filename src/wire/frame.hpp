// A frame is one packet: version, type, id of the request it belongs to, then the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "wire/codec.hpp"

namespace asr {

// Of all messages together. A daemon may meet guests and a keeper that an older release started: a
// release that changes any message changes this.
inline constexpr std::uint16_t kWireVersion = 1;

struct FrameHeader {
  std::uint16_t version = kWireVersion;
  std::uint16_t type = 0;
  std::uint32_t id = 0;
  template <class V>
  void fields(V& v) {
    v(version), v(type), v(id);
  }
};

struct Frame {
  std::uint16_t type = 0;
  std::uint32_t id = 0;
  std::string_view body;
};

// Nothing if it is no frame of this version.
std::optional<Frame> parse_frame(std::string_view packet);

template <class Message>
std::string encode(std::uint32_t id, const Message& message) {
  Writer writer;
  writer(FrameHeader{kWireVersion, static_cast<std::uint16_t>(Message::kType), id});
  writer(message);
  return writer.take();
}

// Nothing unless the body is exactly one such message.
template <class Message>
std::optional<Message> decode(const Frame& frame) {
  if (frame.type != static_cast<std::uint16_t>(Message::kType)) return std::nullopt;
  Message message;
  Reader reader(frame.body);
  reader(message);
  if (!reader.complete()) return std::nullopt;
  return message;
}

}  // namespace asr
