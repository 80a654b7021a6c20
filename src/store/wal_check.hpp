// Looks into a write-ahead log before SQLite does. SQLite reads a log up to the first frame whose
// checksum is wrong and drops the rest without a word, which is right for a write that was cut off
// and hides damage in the middle.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.hpp"

namespace asr {

struct WalVerdict {
  std::uint64_t readable = 0;  // Frames that SQLite will take.
  std::uint64_t lost = 0;      // Frames of the same log behind a damaged place.
};

// A log that is missing or empty is fine.
Result<WalVerdict> check_wal(const std::filesystem::path& path);

}  // namespace asr
