// A connection to a port inside, handed out as a connected socket.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "guest/work.hpp"

namespace asr {

namespace {

constexpr int kConnectMillis = 5000;

Result<UniqueFd> connect_to(const sockaddr* address, socklen_t size) {
  UniqueFd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket");
  if (::connect(socket.get(), address, size) == 0) return socket;
  if (errno != EINPROGRESS) return fail_errno("connect");
  pollfd ready{socket.get(), POLLOUT, 0};
  if (::poll(&ready, 1, kConnectMillis) <= 0)
    return fail(Errc::timeout, "the port does not answer");
  int err = 0;
  socklen_t length = sizeof err;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &err, &length);
  if (err != 0) return fail(errno_error(err, "connect"));
  return socket;
}

}  // namespace

Result<void> work_on_connection(const Work& work, std::uint16_t port) {
  auto hand_out = [&](const UniqueFd& socket) {
    std::array<int, 1> sent{socket.get()};
    return work.answer(wire::Opened{}, sent);
  };
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (auto socket = connect_to(reinterpret_cast<sockaddr*>(&v4), sizeof v4))
    return hand_out(*socket);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  if (auto socket = connect_to(reinterpret_cast<sockaddr*>(&v6), sizeof v6))
    return hand_out(*socket);
  return fail(Errc::not_found,
              "nothing listens on port " + std::to_string(port) + " in the sandbox",
              "start the server first, on 127.0.0.1 or 0.0.0.0");
}

}  // namespace asr
