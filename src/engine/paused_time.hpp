// How long a sandbox has stood still. While it does, the time of its programs does not run.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>

namespace asr {

class PausedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // As it was told to somebody who is to go on counting.
  struct State {
    Clock::duration before{};
    std::optional<Clock::time_point> since;
  };
  State state() const {
    std::lock_guard lock(mutex_);
    return {before_, since_};
  }
  void restore(State state) {
    std::lock_guard lock(mutex_);
    before_ = state.before;
    since_ = state.since;
  }

  void begin() {
    std::lock_guard lock(mutex_);
    since_ = Clock::now();
  }

  // How long the pause that is going on has taken.
  Clock::duration current() const {
    std::lock_guard lock(mutex_);
    return since_ ? Clock::now() - *since_ : Clock::duration{};
  }

  void end() {
    std::lock_guard lock(mutex_);
    if (since_) before_ += Clock::now() - *since_;
    since_.reset();
  }

  // All pauses together, one that is going on included.
  Clock::duration total() const {
    std::lock_guard lock(mutex_);
    return before_ + (since_ ? Clock::now() - *since_ : Clock::duration{});
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> since_;
  Clock::duration before_{};
};

}  // namespace asr
