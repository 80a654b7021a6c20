#include "cli/name_list.hpp"

#include <algorithm>
#include <cctype>

#include "cli/terminal.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostShown = 100;

bool is_safe(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return false;
    if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0)
      return false;
  }
  return true;
}

bool is_inside_letter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Where the name begins that `text` ends with: a.b.na has it at "na".
std::size_t start_of_name(std::string_view text) {
  std::size_t at = text.size();
  auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '-' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  while (at > 0 && is_name(text[at - 1])) --at;
  return at;
}

}  // namespace

std::vector<std::string> usable_matches(std::vector<std::string> matches, std::string_view text) {
  std::erase_if(matches, [&](const std::string& match) {
    return match.size() <= text.size() || !match.starts_with(text) || !is_safe(match);
  });
  std::sort(matches.begin(), matches.end());
  matches.erase(std::unique(matches.begin(), matches.end()), matches.end());
  return matches;
}

std::string common_start(const std::vector<std::string>& matches) {
  if (matches.empty()) return "";
  std::string common = matches.front();
  for (const std::string& match : matches) {
    auto end = std::mismatch(common.begin(), common.end(), match.begin(), match.end()).first;
    auto length = static_cast<std::size_t>(end - common.begin());
    bool is_whole = length == common.size();
    while (!is_whole && length > 0 && is_inside_letter(common[length])) --length;
    common.resize(length);
  }
  return common;
}

std::string name_list(const std::vector<std::string>& matches, std::string_view text,
                      std::size_t width) {
  std::size_t from = start_of_name(text);
  std::size_t shown = std::min(matches.size(), kMostShown);
  std::size_t widest = 1;
  for (std::size_t i = 0; i < shown; ++i) widest = std::max(widest, matches[i].size() - from);
  std::size_t columns = std::max<std::size_t>(1, width / (widest + 2));
  std::size_t rows = (shown + columns - 1) / columns;
  std::string out;
  for (std::size_t row = 0; row < rows; ++row) {
    std::string line;
    for (std::size_t i = row; i < shown; i += rows)
      line += padded(std::string_view(matches[i]).substr(from), widest + 2);
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  if (shown < matches.size()) out += "and " + std::to_string(matches.size() - shown) + " more\n";
  return out;
}

}  // namespace asr
