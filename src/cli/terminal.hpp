// The caller's terminal: its size, its keys, its colours.
#pragma once

#include <termios.h>

#include <string>
#include <string_view>

#include "engine/command.hpp"

namespace asr {

// Of the first standard stream that is a terminal; 24 by 80 if none is.
TerminalSize terminal_size();

// The caller's terminal passes every key on for as long as this lives.
class RawTerminal {
 public:
  RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

 private:
  termios before_{};
  bool changed_ = false;
};

// Colours for stdout where it is a terminal that has them and nobody set NO_COLOR.
class Paint {
 public:
  Paint();
  std::string good(std::string_view text) const { return in("32", text); }
  std::string fair(std::string_view text) const { return in("33", text); }
  std::string bad(std::string_view text) const { return in("31", text); }
  std::string bold(std::string_view text) const { return in("1", text); }
  std::string dim(std::string_view text) const { return in("2", text); }

 private:
  std::string in(const char* code, std::string_view text) const;
  bool coloured_ = false;
};

// Padded with blanks to `width` columns; counts UTF-8 characters, not bytes.
std::string padded(std::string_view text, std::size_t width);

}  // namespace asr
