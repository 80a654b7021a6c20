#include "session/history_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace asr {

Result<HistoryReader> HistoryReader::open(const std::filesystem::path& folder) {
  HistoryReader reader;
  for (const char* name : {kOldHistoryFile, kHistoryFile}) {
    std::filesystem::path path = folder / name;
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT) continue;
    if (!file) return fail_errno("open a history");
    TRY(reader.take(std::move(file)));
  }
  return reader;
}

Result<void> HistoryReader::take(UniqueFd file) {
  HistoryLines lines = TRY(HistoryLines::of(file.get()));
  if (lines.empty()) return {};
  std::string heading = TRY(lines.line(0));
  json::value about = TRY(parse_json(heading));
  if (!about.is_object()) return fail(Errc::internal, "a history is damaged");
  if (!about_) about_ = std::move(about.get_object());
  Part part;
  part.begin = TRY(lines.after(0));
  part.end = lines.end();
  if (part.begin >= part.end) return {};
  part.first = TRY(lines.number(part.begin));
  part.last = TRY(lines.last_number()).value_or(0);
  part.file = std::move(file);
  parts_.push_back(std::move(part));
  return {};
}

Result<HistoryReader::Page> HistoryReader::page(std::uint64_t from, std::size_t limit,
                                                std::uint64_t most_bytes) const {
  Page page;
  std::uint64_t bytes = 0;
  for (const Part& part : parts_) {
    if (part.last < from) continue;
    HistoryLines lines = TRY(HistoryLines::of(part.file.get()));
    std::uint64_t at = TRY(lines.find(from, part.begin));
    while (at < part.end) {
      if (page.steps.size() >= limit || (bytes >= most_bytes && !page.steps.empty())) {
        page.next = TRY(lines.number(at));
        return page;
      }
      std::uint64_t most = std::min(part.end - at, most_bytes - std::min(bytes, most_bytes));
      for (std::string& line : TRY(lines.some(at, most, limit - page.steps.size()))) {
        at += line.size() + 1;
        bytes += line.size() + 1;
        page.steps.push_back(std::move(line));
      }
    }
  }
  return page;
}

}  // namespace asr
