#include "os/seqpacket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

namespace asr {

Result<SocketPair> seqpacket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return fail_errno("socketpair");
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

namespace {

// Through the folder's descriptor: a socket's own path may have 107 bytes at most.
Result<sockaddr_un> address_of(int dir, const std::string& name) {
  std::string path = "/proc/self/fd/" + std::to_string(dir) + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(Errc::invalid, "the name is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> make_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("socket");
  return socket;
}

}  // namespace

Result<UniqueFd> listen_seqpacket(int dir, const std::string& name) {
  sockaddr_un address = TRY(address_of(dir, name));
  UniqueFd socket = TRY(make_socket());
  if (::unlinkat(dir, name.c_str(), 0) != 0 && errno != ENOENT) return fail_errno("unlink " + name);
  // The mode of the file is that of the socket before it has a name.
  if (::fchmod(socket.get(), 0600) != 0) return fail_errno("chmod " + name);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind " + name);
  if (::listen(socket.get(), 8) != 0) return fail_errno("listen on " + name);
  return socket;
}

Result<UniqueFd> connect_seqpacket(int dir, const std::string& name) {
  sockaddr_un address = TRY(address_of(dir, name));
  UniqueFd socket = TRY(make_socket());
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("connect to " + name);
  return socket;
}

Result<Peer> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail_errno("SO_PEERCRED");
  return Peer{peer.pid, peer.uid};
}

Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> fds, Wait wait) {
  if (bytes.size() > kMaxPacket || fds.size() > kMaxPacketFds)
    return fail(Errc::invalid, "message of " + std::to_string(bytes.size()) + " bytes is too long");
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)];
  if (!fds.empty()) {
    std::memset(control, 0, sizeof control);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  int flags = MSG_NOSIGNAL | (wait == Wait::dont_block ? MSG_DONTWAIT : 0);
  while (::sendmsg(socket, &message, flags) < 0) {
    if (errno == EINTR) continue;
    return fail_errno("sendmsg");
  }
  return {};
}

namespace {

void take_descriptors(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

Result<Received> receive_packet(int socket, std::span<char> buffer, Wait wait) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPacketFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int flags = MSG_CMSG_CLOEXEC | (wait == Wait::dont_block ? MSG_DONTWAIT : 0);
  ssize_t size = 0;
  while ((size = ::recvmsg(socket, &message, flags)) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Received{};
    if (errno == ECONNRESET) return Received{Received::Kind::closed, {}, {}};
    return fail_errno("recvmsg");
  }
  Received received;
  take_descriptors(message, received.fds);
  bool cut = (message.msg_flags & MSG_CTRUNC) != 0;
  received.lost_descriptors = cut && received.fds.size() < kMaxPacketFds;
  if (received.lost_descriptors) received.fds.clear();
  if ((message.msg_flags & MSG_TRUNC) != 0 || (cut && !received.lost_descriptors))
    return fail(Errc::internal, "the peer sent a message that is too long");
  if (size == 0) return Received{Received::Kind::closed, {}, {}};
  received.kind = Received::Kind::packet;
  received.bytes = std::string_view(buffer.data(), static_cast<std::size_t>(size));
  return received;
}

}  // namespace asr
