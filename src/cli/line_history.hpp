// The lines that were typed at earlier prompts, in a file for their owner's eyes only.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace asr {

// A comfort: what cannot be read or written is not there, and nobody is told.
class LineHistory {
 public:
  static constexpr std::size_t kMost = 1000;
  static constexpr std::size_t kLongest = 4096;  // Longer lines are not kept.

  explicit LineHistory(std::filesystem::path file);

  // The oldest first.
  const std::vector<std::string>& lines() const noexcept { return lines_; }
  // False if it is not worth keeping: blank, or the same as the one before. Goes to the file at
  // once: prompts in several windows add to one history, and a crash loses none of it.
  bool add(std::string_view line);

 private:
  void load();
  void rewrite() const;

  std::filesystem::path file_;
  std::vector<std::string> lines_;
};

}  // namespace asr
