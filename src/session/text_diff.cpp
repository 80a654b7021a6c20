#include "session/text_diff.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace asr {

namespace {

using Lines = std::vector<std::string_view>;    // with their newlines
using Numbers = std::vector<std::uint32_t>;     // equal lines have equal numbers
constexpr std::size_t kNone = ~std::size_t{0};  // in place of a line's index
constexpr int kDeepest = 64;

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

// Part of both texts: lines from `a` up to `a_end` of the first, and of the second.
struct Part {
  std::size_t a = 0;
  std::size_t a_end = 0;
  std::size_t b = 0;
  std::size_t b_end = 0;
  int depth = 0;
};

struct Pair {
  std::size_t a;
  std::size_t b;
};

// Finds for each line of the first text the same line in the second, in order.
class Matching {
 public:
  // `count`: how many numbers there are.
  Matching(const Numbers& a, const Numbers& b, std::size_t count, std::size_t most_work)
      : a_(a),
        b_(b),
        seen_(count),
        matches_(a.size(), kNone),
        walking_(most_work),
        counting_(most_work) {}

  std::vector<std::size_t> find();

 private:
  void match(Part part);
  std::vector<Pair> unique_in_both(const Part& part);
  bool shortest_way(const Part& part);
  static bool spend(std::size_t& work, std::size_t amount) {
    if (work < amount) return false;
    work -= amount;
    return true;
  }

  struct Seen {
    std::size_t a = kNone;
    std::size_t b = kNone;
    bool again = false;
  };

  const Numbers& a_;
  const Numbers& b_;
  std::vector<Seen> seen_;  // of each number, in the part that is looked at
  std::vector<std::size_t> matches_;
  std::vector<Part> parts_;  // to be looked at
  // What is left for the shortest way, and for lines that are there once. Apart, so that one does
  // not starve the other.
  std::size_t walking_;
  std::size_t counting_;
};

std::vector<std::size_t> Matching::find() {
  parts_.push_back({0, a_.size(), 0, b_.size(), 0});
  while (!parts_.empty()) {
    Part part = parts_.back();
    parts_.pop_back();
    match(part);
  }
  return std::move(matches_);
}

void Matching::match(Part part) {
  auto pair = [&](std::size_t a, std::size_t b) { matches_[a] = b; };
  while (part.a < part.a_end && part.b < part.b_end && a_[part.a] == b_[part.b])
    pair(part.a++, part.b++);
  while (part.a < part.a_end && part.b < part.b_end && a_[part.a_end - 1] == b_[part.b_end - 1])
    pair(--part.a_end, --part.b_end);
  if (part.a == part.a_end || part.b == part.b_end) return;
  // The shortest way first: it finds what a person would say, and most changes are small.
  if (shortest_way(part)) return;
  std::size_t lines = part.a_end - part.a + part.b_end - part.b;
  if (part.depth >= kDeepest || !spend(counting_, lines)) return;
  std::vector<Pair> anchors = unique_in_both(part);
  if (anchors.empty()) return;  // All of it is told as written anew.
  Part between{part.a, part.a, part.b, part.b, part.depth + 1};
  for (const Pair& anchor : anchors) {
    pair(anchor.a, anchor.b);
    between.a_end = anchor.a;
    between.b_end = anchor.b;
    parts_.push_back(between);
    between.a = anchor.a + 1;
    between.b = anchor.b + 1;
  }
  between.a_end = part.a_end;
  between.b_end = part.b_end;
  parts_.push_back(between);
}

// The most of those lines that are there once in each part and come in the same order.
std::vector<Pair> Matching::unique_in_both(const Part& part) {
  for (std::size_t i = part.a; i < part.a_end; ++i) seen_[a_[i]] = {};
  for (std::size_t i = part.b; i < part.b_end; ++i) seen_[b_[i]] = {};
  auto look = [&](std::uint32_t line, std::size_t Seen::*where, std::size_t index) {
    Seen& entry = seen_[line];
    if (entry.*where != kNone) entry.again = true;
    entry.*where = index;
  };
  for (std::size_t i = part.a; i < part.a_end; ++i) look(a_[i], &Seen::a, i);
  for (std::size_t i = part.b; i < part.b_end; ++i) look(b_[i], &Seen::b, i);

  // The longest rising row: `ends[n]` is where the one of n + 1 pairs with the least last `b` ends.
  std::vector<Pair> pairs;
  std::vector<std::size_t> ends;
  std::vector<std::size_t> before;
  for (std::size_t i = part.a; i < part.a_end; ++i) {
    const Seen& entry = seen_[a_[i]];
    if (entry.again || entry.b == kNone) continue;
    auto place = std::lower_bound(ends.begin(), ends.end(), entry.b,
                                  [&](std::size_t at, std::size_t b) { return pairs[at].b < b; });
    before.push_back(place == ends.begin() ? kNone : *(place - 1));
    if (place == ends.end())
      ends.push_back(pairs.size());
    else
      *place = pairs.size();
    pairs.push_back({i, entry.b});
  }
  std::vector<Pair> row;
  for (std::size_t at = ends.empty() ? kNone : ends.back(); at != kNone; at = before[at])
    row.push_back(pairs[at]);
  std::reverse(row.begin(), row.end());
  return row;
}

// The fewest lines removed and added that lead from one part to the other: how far one comes with
// 0, 1, 2, … of them on each diagonal (Myers, 1986). False if that is more than we look for.
bool Matching::shortest_way(const Part& part) {
  constexpr std::int64_t kMostSteps = 512;
  auto rows = static_cast<std::int64_t>(part.a_end - part.a);
  auto columns = static_cast<std::int64_t>(part.b_end - part.b);
  std::int64_t most = std::min(rows + columns, kMostSteps);
  auto a_at = [&](std::int64_t i) { return a_[part.a + static_cast<std::size_t>(i)]; };
  auto b_at = [&](std::int64_t i) { return b_[part.b + static_cast<std::size_t>(i)]; };
  auto index = [&](std::int64_t diagonal) { return static_cast<std::size_t>(diagonal + most + 1); };
  std::vector<std::int64_t> reached(static_cast<std::size_t>(2 * most + 3), 0);
  std::vector<std::vector<std::int64_t>> history;  // of each step, its diagonals -d … d
  std::int64_t steps = -1;
  for (std::int64_t d = 0; d <= most && steps < 0; ++d) {
    for (std::int64_t k = -d; k <= d; k += 2) {
      bool down = k == -d || (k != d && reached[index(k - 1)] < reached[index(k + 1)]);
      std::int64_t x = down ? reached[index(k + 1)] : reached[index(k - 1)] + 1;
      std::int64_t from = x;
      while (x < rows && x - k < columns && a_at(x) == b_at(x - k)) ++x;
      if (!spend(walking_, static_cast<std::size_t>(x - from) + 1)) return false;
      reached[index(k)] = x;
      if (k == rows - columns && x >= rows) {
        steps = d;
        break;
      }
    }
    auto first = reached.begin() + static_cast<std::ptrdiff_t>(index(-d));
    history.emplace_back(first, first + 2 * d + 1);
  }
  if (steps < 0) return false;

  std::int64_t x = rows;
  std::int64_t k = rows - columns;
  for (std::int64_t d = steps; d > 0; --d) {
    const auto& last = history[static_cast<std::size_t>(d - 1)];
    auto at = [&](std::int64_t diagonal) {
      return last[static_cast<std::size_t>(diagonal + d - 1)];
    };
    bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
    std::int64_t previous = down ? k + 1 : k - 1;
    std::int64_t begin = at(previous);
    for (std::int64_t turn = down ? begin : begin + 1; x > turn; --x)
      matches_[part.a + static_cast<std::size_t>(x - 1)] =
          part.b + static_cast<std::size_t>(x - 1 - k);
    x = begin;
    k = previous;
  }
  for (; x > 0; --x)
    matches_[part.a + static_cast<std::size_t>(x - 1)] = part.b + static_cast<std::size_t>(x - 1);
  return true;
}

DiffLine line_of(DiffLine::Kind kind, std::string_view text) {
  bool newline = text.ends_with('\n');
  if (newline) text.remove_suffix(1);
  return {kind, std::string(text), newline};
}

// A run of lines that are gone, a run that came in their place; none of one of them, perhaps.
struct Change {
  std::size_t a, a_end, b, b_end;
};

std::vector<Change> changes_in(const std::vector<std::size_t>& matches, std::size_t b_size) {
  std::vector<Change> changes;
  std::size_t a = 0;
  std::size_t b = 0;
  while (a < matches.size() || b < b_size) {
    if (a < matches.size() && matches[a] == b) {
      ++a, ++b;
      continue;
    }
    Change change{a, a, b, b};
    while (a < matches.size() && matches[a] == kNone) ++a;
    b = a < matches.size() ? matches[a] : b_size;
    change.a_end = a;
    change.b_end = b;
    changes.push_back(change);
  }
  return changes;
}

// From `first` up to `last` of the changes, with the lines around them.
DiffHunk hunk_of(const Lines& before, const Lines& after, const Change* first, const Change* last,
                 std::size_t context) {
  std::size_t lead = std::min(context, first->a);
  std::size_t trail = std::min(context, before.size() - (last - 1)->a_end);
  DiffHunk hunk;
  std::size_t a = first->a - lead;
  std::size_t b = first->b - lead;
  std::size_t a_begin = a;
  std::size_t b_begin = b;
  auto keep_until = [&](std::size_t end) {
    for (; a < end; ++a, ++b) hunk.lines.push_back(line_of(DiffLine::Kind::same, before[a]));
  };
  for (const Change* change = first; change != last; ++change) {
    keep_until(change->a);
    for (; a < change->a_end; ++a)
      hunk.lines.push_back(line_of(DiffLine::Kind::removed, before[a]));
    for (; b < change->b_end; ++b) hunk.lines.push_back(line_of(DiffLine::Kind::added, after[b]));
  }
  keep_until(a + trail);
  hunk.before_lines = a - a_begin;
  hunk.after_lines = b - b_begin;
  hunk.before = a_begin + (hunk.before_lines > 0 ? 1 : 0);
  hunk.after = b_begin + (hunk.after_lines > 0 ? 1 : 0);
  return hunk;
}

// As git writes it: a name that could be taken for something else stands in quotes.
std::string quoted(const std::string& name) {
  auto is_plain = [](char c) {
    auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f && c != '"' && c != '\\';
  };
  if (std::all_of(name.begin(), name.end(), is_plain)) return name;
  std::string text = "\"";
  for (char c : name) {
    if (is_plain(c)) {
      text += c;
    } else if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else {
      std::array<char, 8> octal{};
      std::snprintf(octal.data(), octal.size(), "\\%03o", static_cast<unsigned char>(c));
      text += octal.data();
    }
  }
  return text + "\"";
}

std::string range(std::size_t first, std::size_t lines) {
  return std::to_string(first) + (lines == 1 ? "" : "," + std::to_string(lines));
}

}  // namespace

bool is_text(std::string_view bytes) noexcept { return bytes.find('\0') == std::string_view::npos; }

TextDiff diff_texts(std::string_view before, std::string_view after, DiffOptions options) {
  Lines a = lines_of(before);
  Lines b = lines_of(after);
  // Sorted, not hashed: whoever wrote the texts could make all lines meet in one place.
  Lines distinct = a;
  distinct.insert(distinct.end(), b.begin(), b.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  auto number_all = [&](const Lines& lines) {
    Numbers numbers;
    numbers.reserve(lines.size());
    for (std::string_view line : lines)
      numbers.push_back(static_cast<std::uint32_t>(
          std::lower_bound(distinct.begin(), distinct.end(), line) - distinct.begin()));
    return numbers;
  };
  Numbers a_numbers = number_all(a);
  Numbers b_numbers = number_all(b);
  Matching matching(a_numbers, b_numbers, distinct.size(), options.most_work);
  std::vector<Change> changes = changes_in(matching.find(), b.size());

  TextDiff diff;
  const Change* end = changes.data() + changes.size();
  for (const Change* first = changes.data(); first != end;) {
    const Change* last = first + 1;
    while (last != end && last->a - (last - 1)->a_end <= 2 * options.context) ++last;
    diff.hunks.push_back(hunk_of(a, b, first, last, options.context));
    for (; first != last; ++first) {
      diff.removed += first->a_end - first->a;
      diff.added += first->b_end - first->b;
    }
  }
  return diff;
}

std::string unified(const TextDiff& diff, const DiffNames& names) {
  if (diff.hunks.empty()) return {};
  auto side = [](const char* prefix, const std::string& name) {
    return name.empty() ? std::string("/dev/null") : quoted(prefix + name);
  };
  std::string text = "--- " + side("a", names.before) + "\n+++ " + side("b", names.after) + "\n";
  for (const DiffHunk& hunk : diff.hunks) {
    text += "@@ -" + range(hunk.before, hunk.before_lines) + " +" +
            range(hunk.after, hunk.after_lines) + " @@\n";
    for (const DiffLine& line : hunk.lines) {
      text += line.kind == DiffLine::Kind::same    ? ' '
              : line.kind == DiffLine::Kind::added ? '+'
                                                   : '-';
      text += line.text;
      text += line.newline ? "\n" : "\n\\ No newline at end of file\n";
    }
  }
  return text;
}

}  // namespace asr
