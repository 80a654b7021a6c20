#include "base/log.hpp"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
constexpr std::size_t kLongestValue = 2048;
// A pipe that is ready takes this much without making anybody wait.
constexpr std::size_t kLongestLine = PIPE_BUF;
// Where values stop, so that what must follow them, names and marks, still fits.
constexpr std::size_t kFull = kLongestLine - 512;

// Valid in JSON and harmless on a terminal. Bytes that are no ASCII stay as they are: JSON readers
// want UTF-8, and what is not valid there was escaped by whoever made the text.
void append_escaped(std::string& line, std::string_view text) {
  bool cut = text.size() > kLongestValue;
  for (char c : text.substr(0, kLongestValue)) {
    if (line.size() > kFull) {
      cut = true;
      break;
    }
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", byte);
      line += code;
    } else {
      line += c;
    }
  }
  if (cut) line += "...";
}

bool takes_a_line(int fd) noexcept {
  pollfd ready{fd, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0;
}

void write_line(int fd, std::string line) noexcept {
  if (line.size() >= kLongestLine) line.resize(kLongestLine - 1);
  line += '\n';
  // A log that cannot be written must not stop what it tells of.
  [[maybe_unused]] ssize_t written = ::write(fd, line.data(), line.size());
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  return std::nullopt;
}

std::string_view to_string(LogLevel level) noexcept {
  return kNames[static_cast<std::size_t>(level)];
}

std::string format_line(LogFormat format, LogLevel level, std::int64_t unix_millis,
                        std::string_view message, std::initializer_list<Log::Field> fields) {
  std::string line;
  if (format == LogFormat::json) {
    line = R"({"time":")" + iso_time(unix_millis) + R"(","level":")" +
           std::string(to_string(level)) + R"(","message":")";
    append_escaped(line, message);
    line += '"';
    for (const auto& [name, value] : fields) {
      line += ",\"";
      line += name;  // our own words
      line += "\":\"";
      append_escaped(line, value);
      line += '"';
    }
    return line + '}';
  }
  line = iso_time(unix_millis) + ' ' + std::string(to_string(level)) + ' ';
  append_escaped(line, message);
  for (const auto& [name, value] : fields) {
    line += ' ';
    line += name;
    line += '=';
    bool plain = !value.empty() && value.find(' ') == std::string::npos;
    if (!plain) line += '"';
    append_escaped(line, value);
    if (!plain) line += '"';
  }
  return line;
}

void Log::write(LogLevel level, std::string_view message,
                std::initializer_list<Field> fields) const {
  if (!writes(level)) return;
  if (!takes_a_line(fd_)) {
    ++dropped_;
    return;
  }
  if (std::uint64_t lost = dropped_.exchange(0); lost > 0) {
    write_line(fd_,
               format_line(format_, LogLevel::warning, now_ms(), "lines of this log were dropped",
                           {{"count", std::to_string(lost)}}));
    if (!takes_a_line(fd_)) {
      ++dropped_;
      return;
    }
  }
  write_line(fd_, format_line(format_, level, now_ms(), message, fields));
}

}  // namespace asr
