// How long batches are remembered, and what goes when there are too many verdicts.
#include <algorithm>

#include "session/batches.hpp"

namespace asr {

// Whether so many bytes of a caller's verdicts can be kept, by forgetting older batches that have
// ended: the caller's own, where it has more than its share, and else anybody's.
bool Batches::make_room(const std::string& owner, std::size_t bytes) {
  std::size_t share = settings_.most_bytes / 4;
  auto own = [&] {
    auto found = kept_of_.find(owner);
    return found == kept_of_.end() ? 0 : found->second;
  };
  while (own() + bytes > share)
    if (!forget_oldest(&owner)) return false;
  while (kept_bytes_ + bytes > settings_.most_bytes)
    if (!forget_oldest(nullptr)) return false;
  return true;
}

// Not those that somebody reads at the moment.
bool Batches::forget_oldest(const std::string* owner) {
  for (const auto& [age, batch] : by_age_) {
    if (batch->state() == BatchState::running || batch->is_read()) continue;
    if (owner && batch->owner() != *owner) continue;
    forget(std::shared_ptr(batch));
    return true;
  }
  return false;
}

void Batches::keep(Batch& batch, std::size_t bytes) {
  batch.bytes_ += bytes;
  kept_bytes_ += bytes;
  kept_of_[batch.owner()] += bytes;
}

void Batches::forget(const std::shared_ptr<Batch>& batch) {
  if (by_age_.erase(batch->age_) == 0) return;
  all_.erase(batch->id());
  kept_bytes_ -= batch->bytes();
  auto own = kept_of_.find(batch->owner());
  own->second -= batch->bytes();
  if (own->second == 0) kept_of_.erase(own);
}

// Sleeps until the first may be forgotten; ends when there is none, and is begun with the next end.
asio::awaitable<void> Batches::forget_old() {
  auto gone = gone_;
  for (;;) {
    auto now = Bell::Clock::now();
    auto next = Bell::Clock::time_point::max();
    std::vector<std::shared_ptr<Batch>> over;
    for (const auto& [id, batch] : all_) {
      if (batch->state() == BatchState::running) continue;
      if (batch->forget_at_ <= now)
        over.push_back(batch);
      else
        next = std::min(next, batch->forget_at_);
    }
    for (const auto& batch : over) forget(batch);
    if (next == Bell::Clock::time_point::max()) break;
    // Not at each end of something, or looking would cost more than judging.
    asio::steady_timer timer(executor_, std::max(next, now + std::chrono::seconds(1)));
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (*gone) co_return;
  }
  forgetting_ = false;
}

}  // namespace asr
