// Between a terminal and the daemon. The daemon gets a socket, not the terminal itself: on a socket
// it can say "do not block" per call, whatever the other side does to the shared description.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "guest/work.hpp"

namespace asr {

namespace {

// One direction's bytes that could not be passed on yet. While there are any, no more are read.
struct Pending {
  std::array<char, 16384> bytes{};
  std::size_t from = 0;
  std::size_t to = 0;
  bool empty() const { return from == to; }
};

// False when that side is closed.
bool fill(int fd, Pending& pending) {
  ssize_t n = ::read(fd, pending.bytes.data(), pending.bytes.size());
  if (n <= 0) return n < 0 && (errno == EINTR || errno == EAGAIN);
  pending.from = 0;
  pending.to = static_cast<std::size_t>(n);
  return true;
}

bool drain(int fd, Pending& pending) {
  ssize_t n = ::write(fd, pending.bytes.data() + pending.from, pending.to - pending.from);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  pending.from += static_cast<std::size_t>(n);
  return true;
}

}  // namespace

void relay_terminal(UniqueFd master, UniqueFd peer) {
  // A write that blocks would keep us from reading, and a program that waits for us to read from
  // ever reading.
  for (int fd : {master.get(), peer.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  Pending typed;
  Pending shown;
  for (;;) {
    std::array<pollfd, 2> ready{{{master.get(), 0, 0}, {peer.get(), 0, 0}}};
    if (shown.empty()) ready[0].events |= POLLIN;
    if (!typed.empty()) ready[0].events |= POLLOUT;
    if (typed.empty()) ready[1].events |= POLLIN;
    if (!shown.empty()) ready[1].events |= POLLOUT;
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    bool master_gone =
        (ready[0].revents & (POLLHUP | POLLERR)) != 0 && (ready[0].revents & POLLIN) == 0;
    if (master_gone && shown.empty()) return;
    if ((ready[0].revents & POLLIN) != 0 && !fill(master.get(), shown)) return;
    if ((ready[0].revents & POLLOUT) != 0 && !drain(master.get(), typed)) return;
    if ((ready[1].revents & POLLIN) != 0 && !fill(peer.get(), typed)) return;
    if ((ready[1].revents & POLLOUT) != 0 && !drain(peer.get(), shown)) return;
    if ((ready[1].revents & (POLLHUP | POLLERR)) != 0 && (ready[1].revents & POLLIN) == 0) return;
  }
}

}  // namespace asr
