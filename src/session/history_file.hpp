// Lines of a history in a file, found without reading all of it. Each is a JSON object that begins
// with its number; numbers rise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace asr {

// Two files of one folder: when the newer is half of what is allowed, it takes the older's place.
inline constexpr const char* kHistoryFile = "history";
inline constexpr const char* kOldHistoryFile = "history.old";

// {"number":7,…, and a newline.
std::string history_line(std::uint64_t number, std::string_view object);

// Where the lines lie between `begin` and `end`, which are starts of lines, or the file's end.
class HistoryLines {
 public:
  // Borrows the file. A last line that was not written to its end is left out.
  static Result<HistoryLines> of(int file);

  std::uint64_t end() const noexcept { return end_; }
  bool empty() const noexcept { return end_ == 0; }

  // The line that begins at `at`, without its newline; behind it.
  Result<std::string> line(std::uint64_t at) const;
  Result<std::uint64_t> after(std::uint64_t at) const;
  // Those from there on that fit into so many bytes, but one at least.
  Result<std::vector<std::string>> some(std::uint64_t at, std::uint64_t bytes,
                                        std::size_t limit) const;
  Result<std::uint64_t> number(std::uint64_t at) const;
  // Of the last line; none if there is no line.
  Result<std::optional<std::uint64_t>> last_number() const;
  // Of the first line from `begin` on whose number is at least that; end() if there is none.
  Result<std::uint64_t> find(std::uint64_t number, std::uint64_t begin) const;

 private:
  HistoryLines(int file, std::uint64_t end) : file_(file), end_(end) {}
  Result<std::uint64_t> start_of_line(std::uint64_t at) const;  // in which that byte is

  int file_;
  std::uint64_t end_;
};

}  // namespace asr
