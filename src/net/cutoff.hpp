// Ends from outside what coroutines have open.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

namespace asr {

// Whoever opens something says how it is closed, for as long as it is open. On one thread.
class Cutoff {
 public:
  bool is_cut() const noexcept { return cut_; }
  const std::string& reason() const noexcept { return reason_; }

  // The first reason counts.
  void cut(std::string reason) {
    if (std::exchange(cut_, true)) return;
    reason_ = std::move(reason);
    for (const auto& close : closers_) close();
  }

  // Lives with what it closes. Where all is cut already, it closes at once.
  class Part {
   public:
    Part(std::shared_ptr<Cutoff> cutoff, std::function<void()> close) : cutoff_(std::move(cutoff)) {
      if (!cutoff_) return;
      if (cutoff_->cut_) close();
      place_ = cutoff_->closers_.insert(cutoff_->closers_.end(), std::move(close));
    }
    ~Part() {
      if (cutoff_) cutoff_->closers_.erase(place_);
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    std::shared_ptr<Cutoff> cutoff_;
    std::list<std::function<void()>>::iterator place_;
  };

 private:
  bool cut_ = false;
  std::string reason_;
  std::list<std::function<void()>> closers_;
};

}  // namespace asr
