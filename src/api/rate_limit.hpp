// So many requests at once, and so many a second.
#pragma once

#include <chrono>
#include <list>
#include <string>
#include <unordered_map>

namespace asr {

struct Rate {
  double per_second = 0;  // 0: no limit
  double burst = 0;
};

// A bucket of tokens per name. The number of names is bounded: those unused for longest are
// forgotten, which gives them a full bucket.
class RateLimiter {
 public:
  using Clock = std::chrono::steady_clock;

  RateLimiter(Rate rate, std::size_t most_names) : rate_(rate), most_names_(most_names) {}

  // Takes a token; otherwise says how long to wait for one.
  std::chrono::milliseconds take(const std::string& name, Clock::time_point now = Clock::now());

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point filled;
    std::list<std::string>::iterator place;
  };

  Rate rate_;
  std::size_t most_names_;
  std::unordered_map<std::string, Bucket> buckets_;
  std::list<std::string> by_use_;  // the most recent first
};

}  // namespace asr
