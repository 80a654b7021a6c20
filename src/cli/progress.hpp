// A line on stderr that tells how far something is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace asr {

// Only where somebody looks, and not for what is over at once. Gone when its owner is.
class StatusLine {
 public:
  StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { clear(); }

  bool is_shown() const noexcept { return shown_; }
  // Whether it is time for another look.
  bool is_due();
  // In the place of what it showed before; cut to the width of the terminal.
  void show(const std::string& text);
  void clear();

 private:
  bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// "[#####     ]"
std::string progress_bar(std::uint64_t done, std::uint64_t total, std::size_t width = 30);

}  // namespace asr
