// Connections that a sandbox hands out unasked, and how many more it may. All on the sandbox's
// strand.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>

#include "engine/channel.hpp"

namespace asr {

// A connected TCP socket of the sandbox's loopback, accepted at `port`; anything else is an error.
Result<void> check_egress(int socket, std::uint16_t port);

class EgressQueue : public std::enable_shared_from_this<EgressQueue> {
 public:
  EgressQueue(std::shared_ptr<Channel> channel, std::uint16_t port);

  void put(Letter letter);  // More than were asked for are dropped.
  asio::awaitable<Result<UniqueFd>> take();
  void close() { bell_.cancel(); }  // The channel is closed: nobody need wait any more.

 private:
  void ask();

  std::shared_ptr<Channel> channel_;
  std::uint16_t port_;
  asio::steady_timer bell_;
  std::deque<UniqueFd> waiting_;
  std::size_t asked_ = 0;  // and not come yet
};

}  // namespace asr
