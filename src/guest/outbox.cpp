#include "guest/outbox.hpp"

#include "os/seqpacket.hpp"

namespace asr {

Result<void> Outbox::attempt(const Packet& packet) const {
  std::vector<int> borrowed;
  for (const UniqueFd& fd : packet.fds) borrowed.push_back(fd.get());
  return send_packet(socket_, packet.bytes, borrowed, Wait::dont_block);
}

Result<void> Outbox::send(Packet packet) {
  if (packet.bytes.size() > kMaxPacket || packet.fds.size() > kMaxPacketFds)
    return fail(Errc::invalid, "the answer is too long");
  if (packets_.empty()) {
    auto sent = attempt(packet);
    if (sent || sent.error().code != Errc::exhausted) return sent;
  }
  packets_.push_back(std::move(packet));
  return {};
}

bool Outbox::flush() {
  while (!packets_.empty()) {
    auto sent = attempt(packets_.front());
    if (!sent) return sent.error().code == Errc::exhausted;
    packets_.pop_front();
  }
  return true;
}

}  // namespace asr
