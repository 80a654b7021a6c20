// Time as people read it. Deadlines use steady clocks; these are for records.
#pragma once

#include <cstdint>
#include <string>

namespace asr {

std::int64_t now_ms() noexcept;                  // milliseconds since 1970
std::int64_t now_us() noexcept;                  // microseconds
std::string iso_time(std::int64_t unix_millis);  // 2026-01-31T12:00:00.123Z

}  // namespace asr
