// How work under way is called off. On one thread.
#pragma once

#include <functional>
#include <utility>

#include "session/bell.hpp"

namespace asr {

class CallOff {
 public:
  explicit CallOff(asio::any_io_executor executor) : rung_(std::move(executor)) {}

  bool is_called() const noexcept { return called_; }
  void call() {
    if (std::exchange(called_, true)) return;
    rung_.ring();
    if (stop_) stop_();
  }

  // While this lives, calling off does `stop`, once; one at a time.
  class [[nodiscard]] During {
   public:
    During(CallOff* of, std::function<void()> stop) : of_(of) { of_->stop_ = std::move(stop); }
    ~During() { of_->stop_ = nullptr; }
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    CallOff* of_;
  };

  // Returns at the deadline, or earlier when it is called off.
  asio::awaitable<void> pause(Bell::Clock::duration time) {
    return rung_.wait(Bell::Clock::now() + time);
  }

 private:
  bool called_ = false;
  std::function<void()> stop_;
  Bell rung_;
};

}  // namespace asr
