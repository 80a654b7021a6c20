// What the server tells about itself: one line per event, for people or for programs.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace asr {

enum class LogLevel { debug, info, warning, error, off };
enum class LogFormat { text, json };

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;
std::string_view to_string(LogLevel level) noexcept;

// Safe from any thread: a line is one write(). Nothing in a value can start another line or speak
// to a terminal: control characters are escaped and long values cut. It waits for nobody: lines
// that a reader has no room for are dropped, and how many is the next thing that it reads.
class Log {
 public:
  using Field = std::pair<std::string_view, std::string>;

  Log(int fd, LogFormat format, LogLevel least) : fd_(fd), format_(format), least_(least) {}

  bool writes(LogLevel level) const noexcept { return level >= least_; }
  void write(LogLevel level, std::string_view message,
             std::initializer_list<Field> fields = {}) const;
  void debug(std::string_view message, std::initializer_list<Field> fields = {}) const {
    write(LogLevel::debug, message, fields);
  }
  void info(std::string_view message, std::initializer_list<Field> fields = {}) const {
    write(LogLevel::info, message, fields);
  }
  void warning(std::string_view message, std::initializer_list<Field> fields = {}) const {
    write(LogLevel::warning, message, fields);
  }
  void error(std::string_view message, std::initializer_list<Field> fields = {}) const {
    write(LogLevel::error, message, fields);
  }

 private:
  int fd_;
  LogFormat format_;
  LogLevel least_;
  mutable std::atomic<std::uint64_t> dropped_ = 0;
};

// For tests, too: the line without its end.
std::string format_line(LogFormat format, LogLevel level, std::int64_t unix_millis,
                        std::string_view message, std::initializer_list<Log::Field> fields);

}  // namespace asr
