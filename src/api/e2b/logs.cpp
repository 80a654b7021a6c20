#include "api/e2b/logs.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "session/history_reader.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostSteps = 500;        // the last of them
constexpr std::uint64_t kMostBytes = 4 << 20;  // of steps that are read
constexpr std::size_t kMostLinesOfStep = 200;  // of each stream
constexpr std::size_t kLongestMessage = 4 << 10;

int weight_of(std::string_view level) {
  return level == "error" ? 3 : level == "warn" ? 2 : level == "info" ? 1 : 0;
}

std::string text_of(const json::object& step, std::string_view name) {
  const json::value* value = step.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : "";
}

class Lines {
 public:
  Lines(std::int64_t at_ms, json::object fields, std::vector<E2bLogEntry>& out)
      : at_ms_(at_ms), fields_(std::move(fields)), out_(out) {}

  void add(std::string level, std::string message) {
    if (message.size() > kLongestMessage) message = repair_utf8(message.substr(0, kLongestMessage));
    out_.push_back({at_ms_, std::move(level), std::move(message), fields_});
  }
  void add_each(const std::string& level, std::string_view text) {
    for (std::size_t count = 0; !text.empty() && count < kMostLinesOfStep; ++count) {
      std::size_t end = std::min(text.find('\n'), text.size());
      add(level, std::string(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

 private:
  std::int64_t at_ms_;
  json::object fields_;
  std::vector<E2bLogEntry>& out_;
};

void add_step(const json::object& step, std::vector<E2bLogEntry>& out) {
  const json::value* started = step.if_contains("started_us");
  if (!started || !started->is_number()) return;
  std::string kind = text_of(step, "kind");
  json::object fields{{"kind", kind}};
  for (const char* name : {"command_id", "exit_code", "status"})
    if (const json::value* value = step.if_contains(name)) fields[name] = *value;
  Lines lines(started->to_number<std::int64_t>() / 1000, std::move(fields), out);
  std::string what = text_of(step, "code");
  if (const json::value* argv = step.if_contains("argv"); argv && argv->is_array())
    for (const json::value& word : argv->get_array())
      if (word.is_string()) what += (what.empty() ? "" : " ") + std::string(word.get_string());
  lines.add("info", kind + ": " + what);
  lines.add_each("info", text_of(step, "stdout"));
  lines.add_each("error", text_of(step, "stderr"));
}

}  // namespace

Result<std::vector<E2bLogEntry>> e2b_logs(const std::filesystem::path& folder,
                                          const std::vector<EventRecord>& events,
                                          const E2bLogWish& wish) {
  std::vector<E2bLogEntry> all;
  for (const EventRecord& event : events) {
    if (!event.type.starts_with("session.")) continue;
    boost::system::error_code ec;
    json::value data = json::parse(event.data, ec);
    json::object fields{{"event", event.type}};
    if (!ec && data.is_object()) fields["data"] = std::move(data);
    all.push_back({event.at_ms, "info", event.type, std::move(fields)});
  }
  HistoryReader reader = TRY(HistoryReader::open(folder));
  std::uint64_t from = reader.last() > kMostSteps ? reader.last() - kMostSteps : 1;
  auto page = TRY(reader.page(from, kMostSteps, kMostBytes));
  for (const std::string& text : page.steps) {
    boost::system::error_code ec;
    json::value step = json::parse(text, ec);
    if (!ec && step.is_object()) add_step(step.get_object(), all);
  }
  std::erase_if(all, [&](const E2bLogEntry& entry) {
    return (wish.backward ? entry.at_ms > wish.from_ms : entry.at_ms < wish.from_ms) ||
           weight_of(entry.level) < weight_of(wish.level) ||
           (!wish.search.empty() && entry.message.find(wish.search) == std::string::npos);
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.at_ms < b.at_ms; });
  if (wish.backward) std::reverse(all.begin(), all.end());
  if (all.size() > wish.limit) all.resize(wish.limit);
  return all;
}

json::object json_of(const E2bLogEntry& entry) {
  json::object fields;  // Clients read texts.
  for (const auto& [name, value] : entry.fields)
    fields[name] = value.is_string() ? std::string(value.get_string()) : to_text(value);
  return {{"timestamp", iso_time(entry.at_ms)},
          {"level", entry.level},
          {"message", entry.message},
          {"fields", std::move(fields)}};
}

}  // namespace asr
