// Wakes coroutines that wait for something to change. On one thread, or one strand.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <set>

#include "base/scope_exit.hpp"

namespace asr {

namespace asio = boost::asio;

// Whoever waits looks again afterwards: a ring says that something changed, not what. Waiters may
// outlive the bell.
class Bell {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Bell(asio::any_io_executor executor)
      : executor_(std::move(executor)), waiting_(std::make_shared<Waiting>()) {}
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  ~Bell() { ring(); }

  void ring() {
    for (asio::steady_timer* timer : *waiting_) timer->cancel();
  }

  asio::awaitable<void> wait(Clock::time_point deadline = Clock::time_point::max()) {
    return wait_on(executor_, waiting_, deadline);
  }

 private:
  using Waiting = std::set<asio::steady_timer*>;

  static asio::awaitable<void> wait_on(asio::any_io_executor executor,
                                       std::shared_ptr<Waiting> waiting,
                                       Clock::time_point deadline) {
    asio::steady_timer timer(executor, deadline);
    waiting->insert(&timer);
    // Also when the coroutine is not resumed but destroyed, at the end of everything.
    ScopeExit leave([&] { waiting->erase(&timer); });
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  asio::any_io_executor executor_;
  std::shared_ptr<Waiting> waiting_;
};

}  // namespace asr
