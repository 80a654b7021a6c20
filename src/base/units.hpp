// The quantities people write: "512M", "1.5G", "250ms", "2h".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

// Bytes from a number with an optional suffix K, M, G, T (powers of 1024), with or without B or iB.
Result<std::uint64_t> parse_bytes(std::string_view text);

// A duration from a number with ms, s, m or h; a bare number means seconds.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

std::string format_bytes(std::uint64_t bytes);
std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace asr
