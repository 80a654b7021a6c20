#include "engine/egress_queue.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "wire/guest_messages.hpp"

namespace asr {

namespace {

// Handed out, and nobody has taken them: what a sandbox may cost us at most.
constexpr std::size_t kMostWaiting = 32;

bool is_loopback(const sockaddr_in& address) {
  return address.sin_family == AF_INET && (ntohl(address.sin_addr.s_addr) >> 24) == 127;
}

}  // namespace

Result<void> check_egress(int socket, std::uint16_t port) {
  auto is = [&](int option, int wanted) {
    int value = -1;
    socklen_t size = sizeof value;
    return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
  };
  sockaddr_in own{};
  sockaddr_in peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  if (is(SO_DOMAIN, AF_INET) && is(SO_TYPE, SOCK_STREAM) && is(SO_PROTOCOL, IPPROTO_TCP) &&
      is(SO_ACCEPTCONN, 0) &&
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
      is_loopback(own) && ntohs(own.sin_port) == port &&
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
      is_loopback(peer))
    return {};
  return fail(Errc::internal, "the sandbox handed out something that is not a connection");
}

EgressQueue::EgressQueue(std::shared_ptr<Channel> channel, std::uint16_t port)
    : channel_(std::move(channel)),
      port_(port),
      bell_(channel_->executor(), asio::steady_timer::time_point::max()) {}

void EgressQueue::put(Letter letter) {
  if (asked_ > 0) --asked_;
  if (letter.fds.size() != 1 || waiting_.size() >= kMostWaiting) return;
  // A client that has given up meanwhile has no peer any more; that is no reason to mind.
  if (!check_egress(letter.fds[0].get(), port_)) return;
  waiting_.push_back(std::move(letter.fds[0]));
  bell_.cancel();
}

void EgressQueue::ask() {
  std::size_t on_the_way = waiting_.size() + asked_;
  if (on_the_way > kMostWaiting / 2) return;  // Not one message per connection.
  wire::AcceptMore more;
  more.count = static_cast<std::uint32_t>(kMostWaiting - on_the_way);
  if (channel_->send(0, more)) asked_ += more.count;
}

asio::awaitable<Result<UniqueFd>> EgressQueue::take() {
  auto self = shared_from_this();
  for (;;) {
    if (!channel_->is_open()) co_return fail(Errc::gone, "the sandbox has ended");
    ask();
    if (!waiting_.empty()) {
      UniqueFd connection = std::move(waiting_.front());
      waiting_.pop_front();
      co_return connection;
    }
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await bell_.async_wait(token);
  }
}

}  // namespace asr
