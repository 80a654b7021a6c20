#include "cli/replay_history.hpp"

#include <algorithm>

#include "cli/remote.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongSummary = 60;

std::int64_t number_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  boost::system::error_code ec;
  auto number = value && value->is_number() ? value->to_number<std::int64_t>(ec) : 0;
  return ec ? 0 : number;
}

double duration_of(const json::object& object) {
  const json::value* value = object.if_contains("duration_ms");
  return value && value->is_number() ? value->to_number<double>() : 0;
}

// The first line that says something, on a terminal.
std::string first_line(std::string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  std::size_t end = text.find('\n');
  bool cut = end != std::string_view::npos && end + 1 < text.size();
  std::string line = printable(text.substr(0, end));
  std::size_t most = kLongSummary;
  if (line.size() > most) {
    while (most > 0 && (static_cast<unsigned char>(line[most]) & 0xC0) == 0x80) --most;
    line.resize(most);
    cut = true;
  }
  return cut ? line + " …" : line;
}

std::string words_of(const json::object& told) {
  const json::value* argv = told.if_contains("argv");
  if (!argv || !argv->is_array()) return "";
  const json::array& words = argv->get_array();
  auto word = [&](std::size_t i) {
    return words[i].is_string() ? std::string(words[i].get_string()) : std::string();
  };
  if (words.size() == 3 && word(0) == "/bin/sh" && word(1) == "-c") return word(2);
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : " ") + word(i);
  return text;
}

Result<ReplayStep> step_from(json::object told) {
  ReplayStep step;
  step.kind = text_at(told, "kind");
  std::int64_t number = number_at(told, "number");
  if (number > 0) step.number = static_cast<std::uint64_t>(number);
  step.began_us = number_at(told, "started_us");
  if (step.kind.empty() || step.began_us <= 0) return fail(Errc::invalid, "this is no step");
  step.ended_us = step.began_us + static_cast<std::int64_t>(duration_of(told) * 1000);
  step.told = std::move(told);
  if (step.was_running()) step.ended_us = INT64_MAX;
  return step;
}

void find_overlaps(std::vector<ReplayStep>& steps) {
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    steps[i].overlaps = steps[i + 1].began_us < steps[i].ended_us;
  for (ReplayStep& step : steps) step.overlaps = step.overlaps || step.was_running();
}

}  // namespace

std::string ReplayStep::text(std::string_view name) const { return text_at(told, name); }

std::string ReplayStep::name() const {
  return number ? "step " + std::to_string(*number) : "a step that ran on";
}

std::string ReplayStep::summary() const {
  if (told.contains("left_out")) return kind + ", left out of the history: " + text("left_out");
  if (kind == "command") return first_line(words_of(told));
  if (kind == "cell") return text("context_id") + ": " + first_line(text("code"));
  std::string about = text("operation");
  for (const char* name : {"path", "to", "context_id", "command_id", "signal", "name"})
    if (told.contains(name)) about += " " + printable(text(name));
  return kind + ": " + about;
}

Result<ReplayHistory> read_history(std::istream& from, const std::string& name,
                                   std::uint64_t until) {
  ReplayHistory history;
  std::string line;
  std::int64_t last_us = until == 0 ? INT64_MAX : 0;
  for (std::size_t count = 1; std::getline(from, line); ++count) {
    if (line.empty()) continue;
    std::string place = name + ":" + std::to_string(count) + ": ";
    auto parsed = parse_json(line);
    if (!parsed) return fail(Errc::invalid, place + parsed.error().what);
    if (!parsed->is_object()) return fail(Errc::invalid, place + "not a JSON object");
    json::object& told = parsed->get_object();
    if (text_at(told, "kind") == "session") {
      if (number_at(told, "format") > 1)
        return fail(Errc::unsupported, place + "a later version wrote it");
      history.session = std::move(told);
      continue;
    }
    auto step = step_from(std::move(told));
    if (!step)
      return fail(Errc::invalid, place + step.error().what,
                  "agent-sandbox session history ID --jsonl FILE writes such files");
    if (until != 0 && step->number == until) last_us = step->began_us;
    history.steps.push_back(std::move(*step));
  }
  if (history.session.empty() && history.steps.empty())
    return fail(Errc::invalid, name + " has no history in it",
                "agent-sandbox session history ID --jsonl FILE writes such files");
  if (last_us == 0) return fail(Errc::not_found, name + " has no step " + std::to_string(until));
  history.dropped = static_cast<std::uint64_t>(number_at(history.session, "dropped"));
  std::stable_sort(
      history.steps.begin(), history.steps.end(),
      [](const ReplayStep& a, const ReplayStep& b) { return a.began_us < b.began_us; });
  std::erase_if(history.steps, [&](const ReplayStep& step) {
    return step.began_us > last_us ||
           (step.began_us == last_us && step.number && until != 0 && *step.number > until);
  });
  find_overlaps(history.steps);
  return history;
}

}  // namespace asr
