#include "cli/line_history.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/unique_fd.hpp"

namespace asr {

LineHistory::LineHistory(std::filesystem::path file) : file_(std::move(file)) { load(); }

void LineHistory::load() {
  std::ifstream stream(file_);
  std::size_t seen = 0;
  for (std::string line; std::getline(stream, line); ++seen) {
    if (line.empty() || line.size() > kLongest) continue;
    lines_.push_back(std::move(line));
    if (lines_.size() >= 2 * kMost)
      lines_.erase(lines_.begin(), lines_.end() - static_cast<std::ptrdiff_t>(kMost));
  }
  if (lines_.size() > kMost)
    lines_.erase(lines_.begin(), lines_.end() - static_cast<std::ptrdiff_t>(kMost));
  if (seen > 2 * kMost) rewrite();
}

// So that it does not grow for ever.
void LineHistory::rewrite() const {
  std::filesystem::path half = file_;
  half += ".new";
  UniqueFd fd(::open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return;
  std::string text;
  for (const std::string& line : lines_) text += line + "\n";
  if (::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    (void)::rename(half.c_str(), file_.c_str());
}

bool LineHistory::add(std::string_view line) {
  bool is_blank = line.find_first_not_of(" \t") == std::string_view::npos;
  bool is_kept = !is_blank && line.size() <= kLongest &&
                 line.find('\n') == std::string_view::npos &&
                 (lines_.empty() || lines_.back() != line);
  if (!is_kept) return false;
  lines_.emplace_back(line);
  if (lines_.size() > kMost) lines_.erase(lines_.begin());
  std::error_code ec;
  if (std::filesystem::create_directories(file_.parent_path(), ec))
    (void)::chmod(file_.parent_path().c_str(), 0700);
  UniqueFd fd(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  std::string text = lines_.back() + "\n";
  // One write, so that two prompts do not mix their lines.
  if (fd && ::fchmod(fd.get(), 0600) == 0) (void)!::write(fd.get(), text.data(), text.size());
  return true;
}

}  // namespace asr
