#include "session/folder_paths.hpp"

#include <algorithm>

namespace asr {

namespace {

constexpr std::size_t kMostPath = 4095;

}  // namespace

bool is_plain_path(std::string_view path) noexcept {
  if (path.empty() || path.size() > kMostPath || path.find('\0') != std::string_view::npos)
    return false;
  for (std::size_t from = 0; from <= path.size();) {
    std::size_t to = std::min(path.find('/', from), path.size());
    std::string_view part = path.substr(from, to - from);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    from = to + 1;
  }
  return true;
}

bool stays_inside(std::string_view path, std::string_view target) noexcept {
  if (target.empty() || target.size() > kMostPath || target.starts_with('/') ||
      target.find('\0') != std::string_view::npos)
    return false;
  auto room = std::count(path.begin(), path.end(), '/');
  bool named = false;
  for (std::size_t from = 0; from <= target.size();) {
    std::size_t to = std::min(target.find('/', from), target.size());
    std::string_view part = target.substr(from, to - from);
    // After a name that may itself be a link nobody knows where ".." leads.
    if (part == ".." && (named || room-- == 0)) return false;
    if (!part.empty() && part != "." && part != "..") named = true;
    from = to + 1;
  }
  return true;
}

}  // namespace asr
