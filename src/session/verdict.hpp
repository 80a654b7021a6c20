// What is said of a program that was judged: from how it ended and from what it wrote. Pure: it
// runs nothing.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "engine/command.hpp"

namespace asr {

enum class Verdict {
  accepted,
  wrong_answer,
  time_limit,
  memory_limit,
  output_limit,
  runtime_error,
  compile_error,
  refused,   // it did what is forbidden, or what was asked for cannot be done here
  platform,  // our fault: nothing is known about the program
};
inline constexpr std::size_t kVerdicts = 9;
std::string_view to_string(Verdict verdict) noexcept;

// By its end alone: `accepted` is one that went well, whatever it wrote.
Verdict verdict_of(const ExitStatus& status) noexcept;

// The end in a few words; empty for one that went well.
std::string reason_of(const ExitStatus& status);

enum class Compare {
  lines,  // white space at the end of lines and empty lines at the end do not matter
  bytes,
};
bool is_same_output(std::string_view expected, std::string_view written, Compare how) noexcept;

// At most `most` bytes of it, and no half of a character.
std::string_view beginning_of(std::string_view text, std::size_t most) noexcept;

}  // namespace asr
