// A message as one packet on a socket.
#pragma once

#include <span>

#include "os/seqpacket.hpp"
#include "wire/frame.hpp"

namespace asr {

template <class Message>
Result<void> send_message(int socket, std::uint32_t id, const Message& message,
                          std::span<const int> fds = {}, Wait wait = Wait::block) {
  return send_packet(socket, encode(id, message), fds, wait);
}

}  // namespace asr
