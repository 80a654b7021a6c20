// A time limit for what waits on a socket.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>

namespace asr {

namespace asio = boost::asio;

// Stops what waits on a socket when the time is up, and leaves it open: a stream's own deadline
// would close it, and nothing could be said any more.
class Deadline {
 public:
  Deadline(asio::ip::tcp::socket& socket, std::chrono::milliseconds time)
      : timer_(socket.get_executor(), time), state_(std::make_shared<State>()) {
    timer_.async_wait([&socket, state = state_](boost::system::error_code ec) {
      if (ec || state->over) return;
      state->passed = true;
      boost::system::error_code ignored;
      socket.cancel(ignored);
    });
  }
  ~Deadline() { state_->over = true; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  bool has_passed() const noexcept { return state_->passed; }

 private:
  struct State {
    bool over = false;
    bool passed = false;
  };
  asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

}  // namespace asr
