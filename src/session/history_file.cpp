#include "session/history_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace asr {

namespace {

constexpr std::string_view kStart = "{\"number\":";
constexpr std::uint64_t kBlock = 16 << 10;

// Up to so many bytes; fewer only at the file's end.
Result<std::string> read_at(int file, std::uint64_t at, std::uint64_t size) {
  std::string data(size, '\0');
  std::size_t have = 0;
  while (have < data.size()) {
    ssize_t got =
        ::pread(file, data.data() + have, data.size() - have, static_cast<off_t>(at + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read a history");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  data.resize(have);
  return data;
}

// Behind the last newline before `at`; zero if there is none.
Result<std::uint64_t> behind_newline(int file, std::uint64_t at) {
  while (at > 0) {
    std::uint64_t from = at - std::min(at, kBlock);
    std::string data = TRY(read_at(file, from, at - from));
    std::size_t found = data.rfind('\n');
    if (found != std::string::npos) return from + found + 1;
    at = from;
  }
  return std::uint64_t{0};
}

}  // namespace

std::string history_line(std::uint64_t number, std::string_view object) {
  std::string line(kStart);
  line.reserve(kStart.size() + 24 + object.size());
  line += std::to_string(number);
  line += ',';
  line += object.substr(1);
  line += '\n';
  return line;
}

Result<HistoryLines> HistoryLines::of(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return fail_errno("look at a history");
  std::uint64_t end = TRY(behind_newline(file, static_cast<std::uint64_t>(info.st_size)));
  return HistoryLines(file, end);
}

Result<std::uint64_t> HistoryLines::start_of_line(std::uint64_t at) const {
  return behind_newline(file_, at);
}

Result<std::uint64_t> HistoryLines::after(std::uint64_t at) const {
  while (at < end_) {
    std::string data = TRY(read_at(file_, at, std::min(kBlock, end_ - at)));
    std::size_t found = data.find('\n');
    if (found != std::string::npos) return at + found + 1;
    if (data.empty()) break;
    at += data.size();
  }
  return end_;
}

Result<std::string> HistoryLines::line(std::uint64_t at) const {
  std::uint64_t behind = TRY(after(at));
  std::string text = TRY(read_at(file_, at, behind - at));
  if (!text.empty()) text.pop_back();  // the newline
  return text;
}

Result<std::vector<std::string>> HistoryLines::some(std::uint64_t at, std::uint64_t bytes,
                                                    std::size_t limit) const {
  std::string data = TRY(read_at(file_, at, std::min(bytes, end_ - at)));
  std::vector<std::string> lines;
  for (std::size_t from = 0; lines.size() < limit;) {
    std::size_t newline = data.find('\n', from);
    if (newline == std::string::npos) break;
    lines.push_back(data.substr(from, newline - from));
    from = newline + 1;
  }
  if (lines.empty()) lines.push_back(TRY(line(at)));
  return lines;
}

Result<std::uint64_t> HistoryLines::number(std::uint64_t at) const {
  std::string text = TRY(read_at(file_, at, kStart.size() + 20));
  std::uint64_t number = 0;
  const char* digits = text.data() + std::min(kStart.size(), text.size());
  auto [end, ec] = std::from_chars(digits, text.data() + text.size(), number);
  if (!text.starts_with(kStart) || ec != std::errc())
    return fail(Errc::internal, "a history is damaged");
  return number;
}

Result<std::optional<std::uint64_t>> HistoryLines::last_number() const {
  if (end_ == 0) return std::optional<std::uint64_t>();
  std::uint64_t start = TRY(start_of_line(end_ - 1));
  return std::optional(TRY(number(start)));
}

Result<std::uint64_t> HistoryLines::find(std::uint64_t wanted, std::uint64_t begin) const {
  std::uint64_t low = begin;
  std::uint64_t high = end_;
  while (low < high) {
    std::uint64_t start = TRY(start_of_line(low + (high - low) / 2));
    if (TRY(number(start)) >= wanted)
      high = start;
    else
      low = TRY(after(start));
  }
  return low;
}

}  // namespace asr
