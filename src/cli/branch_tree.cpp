#include "cli/branch_tree.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/units.hpp"
#include "cli/remote.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

constexpr std::size_t kWidestLabel = 60;    // columns; what is wider is not lined up
constexpr std::size_t kLongestBefore = 40;  // bytes of the code that an automatic one came before

struct Marks {
  const char *session, *asked, *checkpoint;
  const char *fork, *last_fork;  // where another way begins
  const char *bar, *blank;       // beside what lies on it
  const char* arrow;
};

Marks marks_of(Letters letters) {
  if (letters == Letters::ascii) return {"o", "@", "*", "+--", "`--", "|  ", "   ", "<-- now"};
  return {"○", "◉", "●", "├──", "└──", "│  ", "   ", "◀ now"};
}

std::uint64_t number_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  boost::system::error_code ec;
  std::uint64_t number = value && value->is_number() ? value->to_number<std::uint64_t>(ec) : 0;
  return ec ? 0 : number;
}

const json::array& list_at(const json::object& object, std::string_view name) {
  static const json::array kNone;
  const json::value* value = object.if_contains(name);
  return value && value->is_array() ? value->get_array() : kNone;
}

struct OneSession;

// A checkpoint of a session, or the session itself, which is where its first checkpoint begins.
struct Point {
  std::shared_ptr<const OneSession> session;
  const json::object* checkpoint = nullptr;
};

// One session's part of the tree: what follows each of its checkpoints, by number; zero is where it
// began. Checkpoints that were removed are nowhere: what followed them follows the beginning.
struct OneSession {
  const json::object* told = nullptr;
  std::map<std::uint64_t, std::vector<const json::object*>> after;
  std::map<std::uint64_t, std::vector<const json::object*>> branches;
  std::uint64_t at = 0;
  std::set<std::uint64_t> way;  // to where the session is now

  explicit OneSession(const json::object& node) : told(&node) {
    std::map<std::uint64_t, const json::object*> known;
    for (const json::value& one : list_at(node, "checkpoints"))
      if (one.is_object()) known[number_at(one.get_object(), "number")] = &one.get_object();
    auto if_known = [&](std::uint64_t number) { return known.contains(number) ? number : 0; };
    for (const auto& [number, checkpoint] : known)
      after[if_known(number_at(*checkpoint, "parent"))].push_back(checkpoint);
    for (const json::value& branch : list_at(node, "branches")) {
      const json::object* object = branch.if_object();
      if (!object) continue;
      const json::value* from = object->if_contains("from");
      bool says = from && from->is_object();
      branches[says ? if_known(number_at(from->get_object(), "checkpoint")) : 0].push_back(object);
    }
    at = if_known(number_at(node, "at"));
    for (std::uint64_t step = at; step != 0 && way.insert(step).second;)
      step = if_known(number_at(*known.at(step), "parent"));
  }

  // What goes on straight below: the way to where the session is, or else what was saved last.
  const json::object* straight_after(std::uint64_t number) const {
    auto found = after.find(number);
    if (found == after.end()) return nullptr;
    for (const json::object* one : found->second)
      if (way.contains(number_at(*one, "number"))) return one;
    return found->second.back();
  }
};

bool is_inside_letter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string name_of(const json::object& checkpoint) {
  std::string name = text_at(checkpoint, "name");
  if (!name.empty()) return printable(name);
  std::string before = text_at(checkpoint, "before");
  bool is_long = before.size() > kLongestBefore;
  std::size_t end = kLongestBefore;
  while (is_long && is_inside_letter(before[end])) --end;
  if (is_long) before.resize(end);
  return "before: " + printable(before) + (is_long ? "..." : "");
}

std::string facts_of(const json::object& checkpoint) {
  return text_at(checkpoint, "created_at") + "  files " +
         format_bytes(number_at(checkpoint, "files_bytes")) + ", memory " +
         format_bytes(number_at(checkpoint, "memory_bytes"));
}

class Drawing {
 public:
  Drawing(Letters letters, std::string asked)
      : marks_(marks_of(letters)), asked_(std::move(asked)) {}

  // A point, what lies straight below it, and beside each all that goes another way.
  void draw(Point point, std::string first, const std::string& rest) {
    for (;;) {
      add_line(first, point);
      const OneSession& session = *point.session;
      std::uint64_t number = point.checkpoint ? number_at(*point.checkpoint, "number") : 0;
      const json::object* straight = session.straight_after(number);
      std::vector<Point> others = others_after(point, number, straight);
      for (std::size_t i = 0; i < others.size(); ++i) {
        bool is_last = !straight && i + 1 == others.size();
        draw(others[i], rest + (is_last ? marks_.last_fork : marks_.fork),
             rest + (is_last ? marks_.blank : marks_.bar));
      }
      if (!straight) return;
      point.checkpoint = straight;
      first = rest;
    }
  }

  std::string text() const {
    std::size_t widest = 0;
    for (const Line& line : lines_)
      if (!line.facts.empty() && line.width <= kWidestLabel) widest = std::max(widest, line.width);
    std::string out;
    for (const Line& line : lines_) {
      std::string text = line.label;
      if (!line.facts.empty()) text = padded(text, widest) + "  " + line.facts;
      if (line.is_now) text += std::string("  ") + marks_.arrow;
      out += text + "\n";
    }
    return out;
  }

 private:
  struct Line {
    std::string label;
    std::string facts;
    bool is_now = false;
    std::size_t width = 0;
  };

  static std::vector<Point> others_after(const Point& point, std::uint64_t number,
                                         const json::object* straight) {
    std::vector<Point> others;
    const OneSession& session = *point.session;
    if (auto found = session.after.find(number); found != session.after.end())
      for (const json::object* one : found->second)
        if (one != straight) others.push_back({point.session, one});
    if (auto found = session.branches.find(number); found != session.branches.end())
      for (const json::object* branch : found->second)
        others.push_back({std::make_shared<OneSession>(*branch), nullptr});
    return others;
  }

  void add_line(const std::string& first, const Point& point) {
    Line line;
    const OneSession& session = *point.session;
    if (point.checkpoint) {
      line.label = first + marks_.checkpoint + " " + name_of(*point.checkpoint);
      line.facts = facts_of(*point.checkpoint);
      line.is_now = session.at == number_at(*point.checkpoint, "number");
    } else {
      std::string id = text_at(*session.told, "session_id");
      line.label = first + (id == asked_ ? marks_.asked : marks_.session) + " " + printable(id) +
                   "  " + printable(text_at(*session.told, "state"));
      line.is_now = session.at == 0;
    }
    line.width = static_cast<std::size_t>(std::count_if(
        line.label.begin(), line.label.end(), [](char c) { return !is_inside_letter(c); }));
    lines_.push_back(std::move(line));
  }

  Marks marks_;
  std::string asked_;
  std::vector<Line> lines_;
};

}  // namespace

Letters letters_of_locale() {
  // The first that says anything counts, as in setlocale().
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string locale(value);
    for (const char* wanted : {"UTF-8", "utf-8", "UTF8", "utf8"})
      if (locale.find(wanted) != std::string::npos) return Letters::boxes;
    return Letters::ascii;
  }
  return Letters::ascii;
}

std::string now_arrow(Letters letters) { return marks_of(letters).arrow; }

std::string draw_tree(const json::value& answer, Letters letters) {
  Drawing drawing(letters, text_at(answer, "session_id"));
  const json::object& top = answer.at("tree").as_object();
  drawing.draw({std::make_shared<OneSession>(top), nullptr}, "", "");
  return drawing.text();
}

}  // namespace asr
