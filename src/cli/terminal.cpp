#include "cli/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace asr {

TerminalSize terminal_size() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0)
      return {size.ws_row, size.ws_col};
  }
  return {};
}

RawTerminal::RawTerminal() {
  if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Paint::Paint() {
  const char* terminal = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  coloured_ = ::isatty(STDOUT_FILENO) != 0 && terminal != nullptr &&
              std::string_view(terminal) != "dumb" && (plain == nullptr || *plain == '\0');
}

std::string Paint::in(const char* code, std::string_view text) const {
  if (!coloured_) return std::string(text);
  return std::string("\033[") + code + "m" + std::string(text) + "\033[0m";
}

std::string padded(std::string_view text, std::size_t width) {
  auto characters = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
  return std::string(text) + std::string(width - std::min(width, characters), ' ');
}

}  // namespace asr
