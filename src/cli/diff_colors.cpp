#include "cli/diff_colors.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/units.hpp"
#include "cli/remote.hpp"
#include "session/change_list.hpp"

namespace asr {

namespace {

std::string painted(std::string_view text, const char* code, Color color) {
  if (color == Color::no || code == nullptr) return std::string(text);
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

const char* code_for(std::string_view line) {
  if (line.starts_with("--- ") || line.starts_with("+++ ")) return "1";
  if (line.starts_with("@@")) return "36";
  if (line.starts_with('+')) return "32";
  if (line.starts_with('-')) return "31";
  return nullptr;
}

// Its header has two lines; a removed line may look like one.
std::string painted_diff(std::string_view text, Color color) {
  std::string out;
  for (int number = 0; !text.empty(); ++number) {
    std::size_t end = std::min(text.find('\n'), text.size());
    std::string line = printable_lines(text.substr(0, end));
    const char* code = code_for(line);
    if (number >= 2 && line.starts_with("--- ")) code = "31";
    if (number >= 2 && line.starts_with("+++ ")) code = "32";
    out += painted(line, code, color) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string without(std::string_view from, const std::string& path) {
  return is_within(path, from) && path.size() > from.size() ? path.substr(from.size() + 1) : path;
}

std::string sizes(const FileChange& change) {
  switch (change.kind) {
    case FileChange::Kind::added:
      return format_bytes(change.size);
    case FileChange::Kind::removed:
      return format_bytes(change.size_before);
    case FileChange::Kind::changed:
      break;
  }
  return format_bytes(change.size_before) + " → " + format_bytes(change.size);
}

std::string details_of(const FileDiff& diff) {
  const FileChange& change = diff.change;
  if (change.type == FileType::directory) return "folder";
  if (change.type == FileType::symlink) return "link to " + printable(change.target);
  if (change.type == FileType::other) return "no file, folder or link";
  switch (diff.state) {
    case FileDiff::State::binary:
      return "binary, " + sizes(change);
    case FileDiff::State::too_large:
      return "large, " + sizes(change);
    case FileDiff::State::text: {  // and no line of it differs
      std::array<char, 8> mode{};
      std::snprintf(mode.data(), mode.size(), "%03o", change.mode & 07777U);
      return change.kind == FileChange::Kind::changed ? "mode " + std::string(mode.data())
                                                      : sizes(change);
    }
    case FileDiff::State::unreadable:
      return sizes(change) + ", cannot be read: " + printable(diff.why);
    default:
      return sizes(change);
  }
}

std::string bytes_at(const json::value& told, const std::string& name) {
  auto bytes = from_base64(text_at(told, name + "_base64"));
  return bytes && !bytes->empty() ? *bytes : text_at(told, name);
}

std::uint64_t number_at(const json::value& told, const char* name) {
  const json::value* value = told.as_object().if_contains(name);
  return value && value->is_number() ? value->to_number<std::uint64_t>() : 0;
}

// The one that is called so, of those that to_string() knows; the last if none is.
template <class Value>
Value named(std::string_view name, std::initializer_list<Value> values) {
  for (Value value : values)
    if (to_string(value) == name) return value;
  return *(values.end() - 1);
}

}  // namespace

Result<Color> color_for(const std::string& wanted, int fd) {
  if (wanted != "auto" && wanted != "always" && wanted != "never")
    return fail(Errc::invalid, "unknown --color " + wanted, "use auto, always or never");
  if (wanted != "auto") return wanted == "always" ? Color::yes : Color::no;
  const char* terminal = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  bool colored = ::isatty(fd) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb" &&
                 (plain == nullptr || *plain == '\0');
  return colored ? Color::yes : Color::no;
}

FileDiff file_diff_from(const json::value& told) {
  using Kind = FileChange::Kind;
  using State = FileDiff::State;
  FileDiff diff;
  FileChange& change = diff.change;
  change.path = bytes_at(told, "path");
  change.target = bytes_at(told, "target");
  change.kind = named(text_at(told, "change"), {Kind::added, Kind::removed, Kind::changed});
  change.type = named(text_at(told, "type"),
                      {FileType::file, FileType::directory, FileType::symlink, FileType::other});
  change.size = number_at(told, "size");
  change.size_before = number_at(told, "size_before");
  change.mode = static_cast<std::uint32_t>(number_at(told, "mode"));
  diff.text = bytes_at(told, "diff");
  diff.why = text_at(told, "why");
  if (told.as_object().contains("diff"))
    diff.state = State::text;
  else if (told.as_object().contains("no_diff"))
    diff.state = named(text_at(told, "no_diff"),
                       {State::binary, State::too_large, State::unreadable, State::too_much});
  return diff;
}

std::string title_of(const FileChange& change, std::string_view from) {
  return std::string(to_string(change.kind)) + " " + printable(without(from, change.path));
}

std::string text_of(const FileDiff& diff, std::string_view from, Color color) {
  if (diff.state == FileDiff::State::text && !diff.text.empty())
    return painted_diff(diff.text, color);
  return painted(title_of(diff.change, from), "1", color) + " (" + details_of(diff) + ")\n";
}

}  // namespace asr
