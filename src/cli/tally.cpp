#include "cli/tally.hpp"

#include <algorithm>
#include <cstdio>

#include "base/units.hpp"
#include "cli/remote.hpp"

namespace asr {

namespace {

// The best first.
constexpr std::string_view kOrder[]{"accepted",      "wrong_answer", "time_limit",
                                    "memory_limit",  "output_limit", "runtime_error",
                                    "compile_error", "refused",      "platform"};

double share(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
  return text;
}

double per_second(std::size_t count, std::chrono::milliseconds took) {
  return static_cast<double>(count) / std::max(0.001, static_cast<double>(took.count()) / 1000);
}

}  // namespace

void Tally::add(const std::string& task, const std::string& verdict) {
  ++done_;
  ++counts_[verdict];
  Task& one = by_task_[task];
  ++one.judged;
  if (verdict == "accepted") ++one.accepted;
}

std::size_t Tally::count(const std::string& verdict) const {
  auto found = counts_.find(verdict);
  return found == counts_.end() ? 0 : found->second;
}

double Tally::pass_rate() const { return share(count("accepted"), done_); }

double Tally::pass_at_1() const {
  double sum = 0;
  for (const auto& [name, task] : by_task_) sum += share(task.accepted, task.judged);
  return by_task_.empty() ? 0 : sum / static_cast<double>(by_task_.size());
}

std::vector<std::pair<std::string, std::size_t>> Tally::in_order() const {
  std::vector<std::pair<std::string, std::size_t>> all;
  for (std::string_view verdict : kOrder)
    if (std::size_t n = count(std::string(verdict)); n > 0) all.emplace_back(verdict, n);
  for (const auto& [verdict, n] : counts_)
    if (std::find(std::begin(kOrder), std::end(kOrder), verdict) == std::end(kOrder))
      all.emplace_back(verdict, n);
  return all;
}

std::string Tally::words() const {
  std::string text;
  for (const auto& [verdict, n] : in_order())
    text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + printable(verdict);
  return text;
}

std::string Tally::table(std::chrono::milliseconds took) const {
  Table table({"VERDICT", "COUNT", "SHARE"});
  for (const auto& [verdict, n] : in_order())
    table.add({printable(verdict), std::to_string(n), percent(share(n, done_))});
  char rate[64];
  std::snprintf(rate, sizeof(rate), "%.1f", per_second(done_, took));
  std::string text = table.text();
  text += "\n" + percent(pass_rate()) + " of the programs passed; pass@1 over " +
          std::to_string(by_task_.size()) + " tasks: " + percent(pass_at_1()) + "\n";
  text += std::to_string(done_) + " of " + std::to_string(total_) + " verdicts in " +
          format_duration(took) + ", " + rate + " a second\n";
  return text;
}

json::object Tally::summary(std::chrono::milliseconds took) const {
  json::object verdicts;
  for (const auto& [verdict, n] : in_order()) verdicts[verdict] = n;
  return {{"total", total_},
          {"done", done_},
          {"complete", done_ == total_},
          {"tasks", tasks_},
          {"verdicts", std::move(verdicts)},
          {"pass_rate", pass_rate()},
          {"pass_at_1", pass_at_1()},
          {"duration_s", static_cast<double>(took.count()) / 1000},
          {"per_second", per_second(done_, took)}};
}

}  // namespace asr
