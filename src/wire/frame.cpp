#include "wire/frame.hpp"

namespace asr {

std::optional<Frame> parse_frame(std::string_view packet) {
  constexpr std::size_t kHeaderSize = 8;
  if (packet.size() < kHeaderSize) return std::nullopt;
  FrameHeader header;
  Reader reader(packet.substr(0, kHeaderSize));
  reader(header);
  if (!reader.complete() || header.version != kWireVersion) return std::nullopt;
  return Frame{header.type, header.id, packet.substr(kHeaderSize)};
}

}  // namespace asr
