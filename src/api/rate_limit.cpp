#include "api/rate_limit.hpp"

#include <algorithm>
#include <cmath>

namespace asr {

std::chrono::milliseconds RateLimiter::take(const std::string& name, Clock::time_point now) {
  if (rate_.per_second <= 0) return std::chrono::milliseconds(0);
  auto [found, is_new] = buckets_.try_emplace(name);
  Bucket& bucket = found->second;
  if (is_new) {
    by_use_.push_front(name);
    bucket = {rate_.burst, now, by_use_.begin()};
    if (buckets_.size() > most_names_) {
      buckets_.erase(by_use_.back());
      by_use_.pop_back();
    }
  } else {
    by_use_.splice(by_use_.begin(), by_use_, bucket.place);
  }
  double seconds = std::chrono::duration<double>(now - bucket.filled).count();
  bucket.tokens = std::min(rate_.burst, bucket.tokens + std::max(0.0, seconds) * rate_.per_second);
  bucket.filled = now;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return std::chrono::milliseconds(0);
  }
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::ceil((1 - bucket.tokens) / rate_.per_second * 1000)));
}

}  // namespace asr
