// Remembers that a server does not answer, so that not everybody has to find out by waiting.
#pragma once

#include <algorithm>
#include <chrono>

namespace asr::e2b {

class Breaker {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPatience = 5;  // failures in a row
  static constexpr std::chrono::seconds kFirstRest{2};
  // Shorter than any lease: sandboxes are renewed in time by a server that is there again.
  static constexpr std::chrono::seconds kLongestRest{10};

  // Whether somebody may try now. After a rest one may, and the others once that one was answered.
  bool may_try(Clock::time_point now) {
    if (failures_ < kPatience) return true;
    if (now < until_) return false;
    until_ = now + rest_;
    return true;
  }
  bool is_open(Clock::time_point now) const { return failures_ >= kPatience && now < until_; }
  std::chrono::seconds left(Clock::time_point now) const {
    return std::chrono::ceil<std::chrono::seconds>(std::max(until_ - now, Clock::duration(0)));
  }
  void answered() {
    failures_ = 0;
    rest_ = kFirstRest;
  }
  void failed(Clock::time_point now) {
    if (++failures_ < kPatience) return;
    failures_ = kPatience;
    until_ = now + rest_;
    rest_ = std::min(2 * rest_, kLongestRest);
  }

 private:
  int failures_ = 0;
  std::chrono::seconds rest_ = kFirstRest;
  Clock::time_point until_;
};

}  // namespace asr::e2b
