// Verdicts, counted: how many of each, and what that means for the tasks.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/json.hpp"

namespace asr {

class Tally {
 public:
  // Of `total` programs for `tasks` tasks.
  Tally(std::size_t total, std::size_t tasks) : total_(total), tasks_(tasks) {}

  void add(const std::string& task, const std::string& verdict);

  std::size_t total() const noexcept { return total_; }
  std::size_t done() const noexcept { return done_; }
  std::size_t count(const std::string& verdict) const;
  // Every program was judged, none failed for reasons that are not its own.
  bool is_sound() const { return done_ == total_ && count("platform") == 0; }

  double pass_rate() const;  // of the programs that were judged
  // The chance that one sample solves its task: the share of accepted ones, averaged over tasks.
  double pass_at_1() const;

  // "12 accepted, 3 wrong_answer"
  std::string words() const;
  std::string table(std::chrono::milliseconds took) const;
  json::object summary(std::chrono::milliseconds took) const;

 private:
  struct Task {
    std::size_t accepted = 0;
    std::size_t judged = 0;
  };
  std::vector<std::pair<std::string, std::size_t>> in_order() const;

  std::size_t total_;
  std::size_t tasks_;
  std::size_t done_ = 0;
  std::map<std::string, std::size_t> counts_;
  std::map<std::string, Task> by_task_;
};

}  // namespace asr
