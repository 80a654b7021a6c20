// Runs a piece of clean-up when the scope ends, unless it was dismissed.
#pragma once

#include <utility>

namespace asr {

template <class F>
class [[nodiscard]] ScopeExit {
 public:
  explicit ScopeExit(F cleanup) : cleanup_(std::move(cleanup)) {}
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;
  ~ScopeExit() {
    if (armed_) cleanup_();
  }
  void dismiss() noexcept { armed_ = false; }

 private:
  F cleanup_;
  bool armed_ = true;
};

}  // namespace asr
