#include "cli/effects_text.hpp"

#include <optional>

#include "base/units.hpp"
#include "cli/remote.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostFiles = 40;

const json::value* at(const json::value& object, std::string_view name) {
  const json::object* fields = object.if_object();
  return fields ? fields->if_contains(name) : nullptr;
}

std::optional<std::uint64_t> count_at(const json::value& object, std::string_view name) {
  const json::value* value = at(object, name);
  if (!value || !value->is_number()) return std::nullopt;
  boost::system::error_code ec;
  auto count = value->to_number<std::uint64_t>(ec);
  return ec ? std::nullopt : std::optional(count);
}

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string line_of(const json::value& file) {
  std::string change = text_at(file, "change");
  std::string size = format_bytes(count_at(file, "size").value_or(0));
  std::string before = format_bytes(count_at(file, "size_before").value_or(0));
  std::string line = (change == "added"     ? "+ "
                      : change == "removed" ? "- "
                                            : "~ ") +
                     printable(text_at(file, "path"));
  if (text_at(file, "type") != "file") return line;
  if (change == "changed" && size != before) return line + " (" + before + ", now " + size + ")";
  return line + " (" + (change == "removed" ? before : size) + ")";
}

void add_files(std::string& text, const json::value& effects) {
  const json::value* files = at(effects, "files");
  if (!files || !files->is_array()) return;
  const json::array& all = files->get_array();
  for (std::size_t i = 0; i < all.size() && i < kMostFiles; ++i)
    text += "  " + line_of(all[i]) + "\n";
  if (all.size() > kMostFiles)
    text += "  and " + counted(all.size() - kMostFiles, "file", "files") + " more\n";
  if (text_at(effects, "files_complete") == "false") text += "  not all files were looked at\n";
}

void add_counts(std::string& text, const json::value& effects) {
  std::string counts;
  auto add = [&](const std::string& part) { counts += (counts.empty() ? "" : ", ") + part; };
  if (auto count = count_at(effects, "processes_started"))
    add(counted(*count, "process", "processes"));
  if (auto bytes = count_at(effects, "peak_memory_bytes"))
    add(format_bytes(*bytes) + " of memory at most");
  if (const json::value* time = at(effects, "cpu_ms"); time && time->is_number())
    add(format_duration(
            std::chrono::nanoseconds(static_cast<std::int64_t>(time->to_number<double>() * 1e6))) +
        " of processor time");
  if (auto bytes = count_at(effects, "bytes_written")) add(format_bytes(*bytes) + " written");
  if (!counts.empty()) text += "  " + counts + "\n";
}

void add_refusals(std::string& text, const json::value& effects) {
  if (const json::value* sent = at(effects, "connections"); sent && sent->is_object()) {
    std::uint64_t attempted = count_at(*sent, "attempted").value_or(0);
    std::uint64_t refused = count_at(*sent, "refused").value_or(0);
    if (attempted + refused > 0)
      text += "  " + counted(attempted, "connection", "connections") + " attempted, " +
              std::to_string(refused) + " refused\n";
  }
  const json::value* calls = at(effects, "refused_calls");
  if (!calls || !calls->is_object() || calls->get_object().empty()) return;
  std::string names;
  for (const auto& [name, count] : calls->get_object())
    names += (names.empty() ? "" : ", ") + printable(name) + " " +
             std::to_string(count_at(*calls, name).value_or(0));
  text += "  refused system calls: " + names + "\n";
}

void add_unknown(std::string& text, const json::value& effects) {
  const json::value* unknown = at(effects, "unknown");
  if (!unknown || !unknown->is_object()) return;
  for (const auto& [name, why] : unknown->get_object())
    text += "  " + printable(name) + " is not known: " + printable(text_at(*unknown, name)) + "\n";
}

}  // namespace

std::string effects_text(const json::value& effects) {
  std::string text;
  add_files(text, effects);
  add_counts(text, effects);
  add_refusals(text, effects);
  add_unknown(text, effects);
  return text.empty() ? text : "agent-sandbox: what it did:\n" + text;
}

}  // namespace asr
