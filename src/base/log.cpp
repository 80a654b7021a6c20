#include "base/log.hpp"

#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>

namespace asr {

namespace {

constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
constexpr std::size_t kLongestValue = 2048;

// Valid in JSON and harmless on a terminal. Bytes that are no ASCII stay as they are: JSON readers
// want UTF-8, and what is not valid there was escaped by whoever made the text.
void append_escaped(std::string& line, std::string_view text) {
  bool cut = text.size() > kLongestValue;
  for (char c : text.substr(0, kLongestValue)) {
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

std::string timestamp(std::int64_t unix_millis) {
  auto seconds = static_cast<time_t>(unix_millis / 1000);
  tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(unix_millis % 1000));
  return text;
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
    line = R"({"time":")" + timestamp(unix_millis) + R"(","level":")" +
           std::string(to_string(level)) + R"(","message":")";
    append_escaped(line, message);
    line += '"';
    for (const auto& [name, value] : fields) {
      line += ",\"";
      append_escaped(line, name);
      line += "\":\"";
      append_escaped(line, value);
      line += '"';
    }
    return line + '}';
  }
  line = timestamp(unix_millis) + ' ' + std::string(to_string(level)) + ' ';
  append_escaped(line, message);
  for (const auto& [name, value] : fields) {
    line += ' ';
    append_escaped(line, name);
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
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::int64_t millis = now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  std::string line = format_line(format_, level, millis, message, fields) + '\n';
  // A log that cannot be written must not stop what it tells of.
  [[maybe_unused]] ssize_t written = ::write(fd_, line.data(), line.size());
}

}  // namespace asr
