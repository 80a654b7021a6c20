// Whose turn it is, when many want the same few places. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace asr {

// Of those who wait, the one with the least in work is next; of equals, the one whose last turn is
// longest ago. So whoever sends much, or what takes long, holds up nobody but himself.
class Turns {
 public:
  void wait(const std::string& who, std::size_t count) {
    if (count == 0) return;
    auto [found, is_new] = all_.try_emplace(who);
    found->second.waiting += count;
    waiting_ += count;
  }
  // They wait no more.
  void leave(const std::string& who, std::size_t count) {
    auto found = all_.find(who);
    if (found == all_.end()) return;
    count = std::min(count, found->second.waiting);
    found->second.waiting -= count;
    waiting_ -= count;
    forget_if_idle(found);
  }
  // From now on it is in work. `below`: only of those who have less than that in work.
  std::optional<std::string> next(std::size_t below = static_cast<std::size_t>(-1)) {
    auto best = all_.end();
    for (auto it = all_.begin(); it != all_.end(); ++it) {
      if (it->second.waiting == 0 || it->second.in_work >= below) continue;
      if (best == all_.end() || it->second.comes_before(best->second)) best = it;
    }
    if (best == all_.end()) return std::nullopt;
    --best->second.waiting;
    --waiting_;
    ++best->second.in_work;
    ++in_work_;
    best->second.last_turn = ++turn_;
    return best->first;
  }
  void done(const std::string& who) {
    auto found = all_.find(who);
    if (found == all_.end() || found->second.in_work == 0) return;
    --found->second.in_work;
    --in_work_;
    forget_if_idle(found);
  }

  std::size_t waiting() const noexcept { return waiting_; }
  std::size_t in_work() const noexcept { return in_work_; }
  std::size_t waiting_of(const std::string& who) const {
    auto found = all_.find(who);
    return found == all_.end() ? 0 : found->second.waiting;
  }

 private:
  struct One {
    std::size_t waiting = 0;
    std::size_t in_work = 0;
    std::uint64_t last_turn = 0;
    bool comes_before(const One& other) const noexcept {
      return in_work != other.in_work ? in_work < other.in_work : last_turn < other.last_turn;
    }
  };
  void forget_if_idle(std::map<std::string, One>::iterator one) {
    if (one->second.waiting == 0 && one->second.in_work == 0) all_.erase(one);
  }

  std::map<std::string, One> all_;
  std::size_t waiting_ = 0;
  std::size_t in_work_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace asr
