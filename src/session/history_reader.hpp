// A history as it is at one moment, of a session that lives or of one that is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "net/json.hpp"
#include "session/history_file.hpp"

namespace asr {

class HistoryReader {
 public:
  // No files: an empty one.
  static Result<HistoryReader> open(const std::filesystem::path& folder);

  std::uint64_t first() const noexcept { return parts_.empty() ? 0 : parts_.front().first; }
  std::uint64_t last() const noexcept { return parts_.empty() ? 0 : parts_.back().last; }
  // Steps that made room for later ones.
  std::uint64_t dropped() const noexcept { return first() == 0 ? 0 : first() - 1; }
  // What the session was made from; none if nothing was ever written.
  const std::optional<json::object>& about() const noexcept { return about_; }

  struct Page {
    std::vector<std::string> steps;     // as JSON
    std::optional<std::uint64_t> next;  // the number to go on from
  };
  // From that number on: at most so many, and about `most_bytes`.
  Result<Page> page(std::uint64_t from, std::size_t limit, std::uint64_t most_bytes) const;

  // Where all steps lie, a line each.
  struct Part {
    UniqueFd file;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t first = 0;  // number
    std::uint64_t last = 0;
  };
  const std::vector<Part>& parts() const noexcept { return parts_; }

 private:
  Result<void> take(UniqueFd file);

  std::vector<Part> parts_;  // Each has a step at least.
  std::optional<json::object> about_;
};

}  // namespace asr
