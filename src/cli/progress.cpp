#include "cli/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/terminal.hpp"

namespace asr {

StatusLine::StatusLine() : shown_(::isatty(STDERR_FILENO) == 1) {}

bool StatusLine::is_due() {
  auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - last_ < std::chrono::milliseconds(200)) return false;
  last_ = now;
  return true;
}

void StatusLine::show(const std::string& text) {
  drawn_ = true;
  std::size_t width = std::max<std::size_t>(terminal_size().columns, 2) - 1;
  std::fprintf(stderr, "\r%s\033[K", text.substr(0, width).c_str());
}

void StatusLine::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

std::string progress_bar(std::uint64_t done, std::uint64_t total, std::size_t width) {
  done = std::min(done, total);
  auto full = total == 0 ? 0 : static_cast<std::size_t>(width * done / total);
  return "[" + std::string(full, '#') + std::string(width - full, ' ') + "]";
}

}  // namespace asr
