// Whole messages, with descriptors, over a unix SOCK_SEQPACKET socket.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// Longest message either side sends or accepts. Below the kernel's default socket buffer.
inline constexpr std::size_t kMaxPacket = 128 * 1024;
inline constexpr std::size_t kMaxPacketFds = 32;

struct SocketPair {
  UniqueFd first;
  UniqueFd second;
};
Result<SocketPair> seqpacket_pair();

// A listening socket with a name in the folder `dir`, for its owner alone; it takes the place of
// one that nobody listens on any more.
Result<UniqueFd> listen_seqpacket(int dir, const std::string& name);
Result<UniqueFd> connect_seqpacket(int dir, const std::string& name);

// Who made the other end, as the kernel saw it then.
struct Peer {
  int pid = -1;
  unsigned uid = 0;
};
Result<Peer> peer_of(int socket);

enum class Wait { block, dont_block };

struct Received {
  enum class Kind { packet, closed, nothing };  // nothing: only with Wait::dont_block
  Kind kind = Kind::nothing;
  std::string_view bytes;  // Into the caller's buffer.
  std::vector<UniqueFd> fds;
  bool lost_descriptors = false;  // This process had no room for them; it has none of them.
};

// One sendmsg: the receiver gets all of it or nothing. EAGAIN comes back as Errc::exhausted.
Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> fds = {},
                         Wait wait = Wait::block);

// Descriptors arrive close-on-exec. A message that does not fit, or brings too many descriptors, is
// an error: the peer broke the protocol, and everything it sent with it is closed.
Result<Received> receive_packet(int socket, std::span<char> buffer, Wait wait = Wait::block);

}  // namespace asr
