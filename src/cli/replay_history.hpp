// A history as `session history --jsonl` wrote it: what the session was made from, and its steps in
// the order they began.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

struct ReplayStep {
  std::optional<std::uint64_t> number;  // none: it was running
  std::string kind;
  json::object told;  // all of the line
  std::int64_t began_us = 0;
  std::int64_t ended_us = 0;
  bool overlaps = false;  // Others began before it ended.

  bool was_running() const { return !number || text("status") == "running"; }
  std::string text(std::string_view name) const;
  std::string name() const;     // "step 7"
  std::string summary() const;  // what it did, on one line
};

struct ReplayHistory {
  json::object session;
  std::uint64_t dropped = 0;  // steps that are not there any more
  std::vector<ReplayStep> steps;
};

// `until`: no step that began later than the one of this number; zero: all of them.
Result<ReplayHistory> read_history(std::istream& from, const std::string& name,
                                   std::uint64_t until = 0);

}  // namespace asr
