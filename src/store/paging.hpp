// How much of a list is given at once, and where the next part begins.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

constexpr std::int64_t kMostPerPage = 1000;

// The limit itself, when it is between 1 and kMostPerPage.
Result<std::int64_t> checked_limit(std::int64_t limit);

// The last thing on a page of a list that goes from new to old. Callers get it as text and give it
// back; it names no owner and opens nothing.
struct Position {
  std::int64_t created_ms = 0;
  std::string id;
  friend bool operator==(const Position&, const Position&) = default;
};
std::string to_cursor(const Position& position);
Result<Position> from_cursor(std::string_view cursor);

}  // namespace asr
