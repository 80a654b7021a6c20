// Python and JavaScript: brackets, quotes, comments, and Python's blocks.
#include "cli/unfinished.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace asr {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\f";
  std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view last_line(std::string_view code) { return code.substr(code.rfind('\n') + 1); }

// One line of Python as its parser sees it: what brackets hold together, without comments.
bool opens_block(std::string_view line) {
  static constexpr std::string_view kWords[]{"async", "class", "def",   "for",
                                             "if",    "try",   "while", "with"};
  line = trimmed(line);
  if (line.empty()) return false;
  if (line.starts_with('@') || line.ends_with(':')) return true;
  auto end = std::find_if_not(line.begin(), line.end(), is_word);
  std::string_view word = line.substr(0, static_cast<std::size_t>(end - line.begin()));
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

// A slash after these begins a regular expression, after anything else it divides.
bool regex_may_follow(std::string_view before) {
  static constexpr std::string_view kWords[]{"case", "delete", "do",     "else", "in",
                                             "of",   "return", "typeof", "void", "yield"};
  before = trimmed(before);
  if (before.empty()) return true;
  if (!is_word(before.back())) return before.back() != ')' && before.back() != ']';
  auto begin = std::find_if_not(before.rbegin(), before.rend(), is_word);
  std::string_view word = before.substr(static_cast<std::size_t>(before.rend() - begin));
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

// Where the regular expression that begins at `at` ends; `at` itself if it is none.
std::size_t end_of_regex(std::string_view code, std::size_t at) {
  bool in_class = false;
  for (std::size_t i = at + 1; i < code.size() && code[i] != '\n'; ++i) {
    if (code[i] == '\\')
      ++i;
    else if (code[i] == '[')
      in_class = true;
    else if (code[i] == ']')
      in_class = false;
    else if (code[i] == '/' && !in_class)
      return i;
  }
  return at;
}

}  // namespace

bool is_unfinished(Tongue tongue, std::string_view code) {
  switch (tongue) {
    case Tongue::python:
      return is_unfinished_python(code);
    case Tongue::javascript:
      return is_unfinished_javascript(code);
    case Tongue::bash:
      return is_unfinished_bash(code);
  }
  return false;
}

// Blocks end with an empty line, as at Python's own prompt: only that tells that no "else" follows.
bool is_unfinished_python(std::string_view code) {
  bool is_blank_ended =
      code.find('\n') != std::string_view::npos && trimmed(last_line(code)).empty();
  if (code.starts_with("%%")) return !is_blank_ended;                // for a whole cell
  if (code.starts_with('!') || code.starts_with('%')) return false;  // a line that is not Python
  bool in_block = false;
  std::size_t depth = 0;
  std::string quote;  // that ends the text we are in
  std::string line;
  for (std::size_t i = 0; i < code.size(); ++i) {
    char c = code[i];
    if (c == '\\') {
      if (i + 1 >= code.size()) return true;
      ++i;
      if (quote.empty() && code[i] != '\n') line += c;
    } else if (!quote.empty()) {
      if (code.substr(i).starts_with(quote)) {
        i += quote.size() - 1;
        quote.clear();
      } else if (c == '\n' && quote.size() == 1) {
        return false;  // Such a text ends on its line.
      }
    } else if (c == '#') {
      i = std::min(code.find('\n', i), code.size()) - 1;
    } else if (c == '"' || c == '\'') {
      quote = std::string(code.substr(i).starts_with(std::string(3, c)) ? 3 : 1, c);
      i += quote.size() - 1;
      line += c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
      line += c;
    } else if (c == ')' || c == ']' || c == '}') {
      if (depth == 0) return false;
      --depth;
      line += c;
    } else if (c == '\n' && depth == 0) {
      in_block |= opens_block(line);
      line.clear();
    } else {
      line += c;
    }
  }
  if (!quote.empty()) return quote.size() == 3;
  if (depth > 0) return true;
  in_block |= opens_block(line);
  return in_block && !is_blank_ended;
}

bool is_unfinished_javascript(std::string_view code) {
  // What must come before it is over; '`' while in a template, '$' for the brace of its "${".
  std::vector<char> open;
  auto closes = [&](char c) {
    if (open.empty()) return false;
    char wanted = open.back() == '$' ? '}' : open.back();
    if (wanted != c) return false;
    open.pop_back();
    return true;
  };
  for (std::size_t i = 0; i < code.size(); ++i) {
    char c = code[i];
    std::string_view rest = code.substr(i);
    if (!open.empty() && open.back() == '`') {
      if (c == '\\') {
        ++i;
      } else if (c == '`') {
        open.pop_back();
      } else if (rest.starts_with("${")) {
        open.push_back('$');
        ++i;
      }
    } else if (c == '"' || c == '\'') {
      for (++i; i < code.size() && code[i] != c; ++i) {
        if (code[i] == '\n') return false;  // Such a text ends on its line.
        if (code[i] == '\\' && ++i >= code.size()) return true;
      }
      if (i >= code.size()) return false;
    } else if (rest.starts_with("//")) {
      i = std::min(code.find('\n', i), code.size()) - 1;
    } else if (rest.starts_with("/*")) {
      i = code.find("*/", i + 2);
      if (i == std::string_view::npos) return true;
      ++i;
    } else if (c == '/' && regex_may_follow(
                               code.substr(code.rfind('\n', i) + 1, i - code.rfind('\n', i) - 1))) {
      i = end_of_regex(code, i);
    } else if (c == '`') {
      open.push_back('`');
    } else if (c == '(') {
      open.push_back(')');
    } else if (c == '[') {
      open.push_back(']');
    } else if (c == '{') {
      open.push_back('}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (!closes(c)) return false;
    }
  }
  return !open.empty();
}

}  // namespace asr
