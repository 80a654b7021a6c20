// How one text became another, line by line, as `diff -u` tells it.
//
// Bounded: whatever the texts are, the work is. What would take too long is told as removed and
// written anew, which is true, if not short.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace asr {

struct DiffLine {
  enum class Kind { same, removed, added };
  Kind kind = Kind::same;
  std::string text;     // without its newline
  bool newline = true;  // false: the text ends here, and not with one

  friend bool operator==(const DiffLine&, const DiffLine&) = default;
};

// Lines that changed, with some around them. Numbers begin at 1; of no lines at all it is the line
// before.
struct DiffHunk {
  std::size_t before = 0;
  std::size_t before_lines = 0;
  std::size_t after = 0;
  std::size_t after_lines = 0;
  std::vector<DiffLine> lines;
};

struct TextDiff {
  std::vector<DiffHunk> hunks;  // None: the texts are equal.
  std::size_t added = 0;        // lines
  std::size_t removed = 0;
};

struct DiffOptions {
  std::size_t context = 3;          // lines around a change
  std::size_t most_work = 1 << 22;  // comparisons, more or less: some tens of milliseconds
};

TextDiff diff_texts(std::string_view before, std::string_view after, DiffOptions options = {});

// Whether a person could read it: no byte in it is zero.
bool is_text(std::string_view bytes) noexcept;

// What `patch` and `git apply` read. A name that is empty says that there is no such file.
struct DiffNames {
  std::string before;
  std::string after;
};
std::string unified(const TextDiff& diff, const DiffNames& names);

}  // namespace asr
