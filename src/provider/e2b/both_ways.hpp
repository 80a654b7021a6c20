// What kBothWays (scripts.hpp) writes, taken apart again.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/sandbox.hpp"

namespace asr::e2b {

class BothWays {
 public:
  static constexpr std::size_t kLongestLine = 256 << 10;

  struct Line {
    enum class Kind { output, not_started, ended };
    Kind kind = Kind::output;
    OutputChunk chunk{OutputChunk::Stream::out, ""};
    int number = 0;  // errno, or the exit code; negative: a signal
  };

  // The rest of a line that began before we listened is not looked at.
  void skip_to_next_line() noexcept { skipping_ = true; }
  // Errc::internal once nothing sensible can follow.
  Result<void> feed(std::string_view bytes);
  Result<std::optional<Line>> next();

 private:
  std::string pending_;
  bool skipping_ = false;
};

}  // namespace asr::e2b
