#include "session/history_steps.hpp"

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr const char* kUnwanted = "its caller wanted it so";

// The end of a text, from the beginning of a character on.
std::string_view end_of(std::string_view text) {
  if (text.size() <= kMostStepOutput) return text;
  text.remove_prefix(text.size() - kMostStepOutput);
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80; ++i)
    text.remove_prefix(1);
  return text;
}

void put_output(json::object& step, const std::string& name, std::string_view text) {
  std::string_view kept = end_of(text);
  put_bytes(step, name, kept);
  if (kept.size() < text.size()) step[name + "_cut"] = text.size() - kept.size();
}

void put_times(json::object& step, std::int64_t started_us, double duration_ms) {
  step["started_at"] = iso_time(started_us / 1000);
  step["started_us"] = started_us;
  step["duration_ms"] = duration_ms;
}

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

json::object limits_of(const Command& command) {
  json::object limits;
  if (command.wall_time) limits["timeout_s"] = seconds(*command.wall_time);
  if (command.cpu_time) limits["cpu_time_s"] = seconds(*command.cpu_time);
  if (command.output_bytes) limits["output_bytes"] = *command.output_bytes;
  return limits;
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : to_text(value);
}

// A value that is too long is known by its hash.
json::value bounded(const json::value& value, std::size_t& room) {
  if (value.is_bool() || value.is_number() || value.is_null()) return value;
  std::string text = text_of(value);
  if (text.size() <= std::min(room, kMostStepOutput)) {
    room -= text.size();
    return value;
  }
  ContentHash hash;
  hash.feed(text);
  json::object about;
  hash.describe(about);
  return json::object{{"left_out", std::move(about)}};
}

// What is told of a step beside what every step has.
void put_rest(json::object& step, const json::object& told) {
  for (const auto& [name, value] : told) {
    if (step.contains(name)) continue;
    std::size_t room = kMostStepOutput;
    step[name] = name == "effects" || name == "artifacts" ? bounded(value, room) : value;
  }
}

json::array bounded_results(const json::array& results) {
  constexpr std::size_t kMostOfThem = 1000;
  std::size_t room = kMostStepResults;
  json::array all;
  for (const json::value& result : results) {
    if (all.size() >= kMostOfThem || !result.is_object()) break;
    json::object kept;
    for (const auto& [mime, value] : result.get_object()) kept[mime] = bounded(value, room);
    all.push_back(std::move(kept));
  }
  return all;
}

json::value bounded_error(const json::value& error) {
  if (!error.is_object()) return error;
  json::object kept;
  for (const auto& [name, value] : error.get_object())
    kept[name] = value.is_string() ? json::value(end_of(value.get_string())) : value;
  return kept;
}

}  // namespace

json::array names_of(const std::map<std::string, std::string>& variables) {
  json::array names;
  for (const auto& [name, value] : variables) names.emplace_back(name);
  return names;
}

json::array about_files(const std::vector<InitialFile>& files) {
  json::array all;
  for (const InitialFile& file : files) {
    json::object about;
    put_bytes(about, "path", file.path);
    about["mode"] = file.mode;
    ContentHash hash;
    hash.feed(file.content);
    hash.describe(about);
    all.push_back(std::move(about));
  }
  return all;
}

json::object command_step(const SessionCommand& command, const json::object& described) {
  const CommandRequest& request = command.request();
  json::object step{{"kind", "command"}, {"command_id", command.id()}};
  if (!request.history) {
    step["left_out"] = kUnwanted;
    for (const char* name : {"status", "exit_code", "signal", "background"})
      step[name] = described.at(name);
  } else {
    step["argv"] = described.at("argv");
    if (!request.command.cwd.empty()) step["cwd"] = repair_utf8(request.command.cwd);
    if (request.command.user != "user") step["user"] = repair_utf8(request.command.user);
    json::array names;
    for (const std::string& name : request.env_names) names.emplace_back(name);
    if (!names.empty()) step["env"] = std::move(names);
    if (command.stdin_bytes() > 0) step["stdin_bytes"] = command.stdin_bytes();
    if (request.stdin_open) step["stdin_open"] = true;
    if (const auto& size = request.command.terminal)
      step["terminal"] = {{"rows", size->rows}, {"columns", size->columns}};
    json::object limits = limits_of(request.command);
    if (!limits.empty()) step["limits"] = std::move(limits);
    put_output(step, "stdout", command.output().text_of(OutputChunk::Stream::out));
    put_output(step, "stderr", command.output().text_of(OutputChunk::Stream::err));
    if (command.output().begin() > 0) step["forgotten_bytes"] = command.output().begin();
  }
  double wall = 0;
  if (const auto& status = command.status()) wall = static_cast<double>(status->wall.count()) / 1e6;
  put_times(step, command.started_us(), wall);
  if (request.history) put_rest(step, described);
  return step;
}

CellFacts facts_of(const CellRequest& request) {
  CellFacts facts;
  facts.wanted = request.history;
  if (!facts.wanted) return facts;
  facts.code = request.code;
  for (const auto& [name, value] : request.env) facts.env.push_back(name);
  facts.files = about_files(request.files);
  facts.timeout = request.timeout;
  if (request.somebody_answers) facts.questions = std::make_shared<std::size_t>(0);
  return facts;
}

json::object cell_step(CellFacts facts, const json::object& answer) {
  json::object step{{"kind", "cell"}};
  for (const char* name : {"context_id", "language", "status"}) step[name] = answer.at(name);
  double duration = answer.at("duration_ms").to_number<double>();
  if (!facts.wanted) {
    step["left_out"] = kUnwanted;
  } else {
    step["code"] = facts.code;
    json::array names;
    for (const std::string& name : facts.env) names.emplace_back(name);
    if (!names.empty()) step["env"] = std::move(names);
    if (!facts.files.empty()) step["files"] = std::move(facts.files);
    if (facts.timeout) step["timeout_s"] = seconds(*facts.timeout);
    if (facts.questions && *facts.questions > 0) step["questions"] = *facts.questions;
    put_output(step, "stdout", answer.at("stdout").get_string());
    put_output(step, "stderr", answer.at("stderr").get_string());
    step["results"] = bounded_results(answer.at("results").get_array());
    step["error"] = bounded_error(answer.at("error"));
  }
  put_times(step, facts.ended_us - static_cast<std::int64_t>(duration * 1000), duration);
  if (facts.wanted) put_rest(step, answer);
  return step;
}

json::object small_step(std::string_view kind, std::string_view operation) {
  json::object step{{"kind", kind}, {"operation", operation}};
  put_times(step, now_us(), 0);
  return step;
}

json::object context_step(std::string_view operation, const std::string& context) {
  json::object step = small_step("context", operation);
  step["context_id"] = context;
  return step;
}

json::object signal_step(const std::string& command, int signal) {
  json::object step = small_step("signal", "send");
  step["command_id"] = command;
  step["signal"] = signal;
  return step;
}

json::object state_step(std::string_view operation, const std::string& name) {
  json::object step = small_step("state", operation);
  if (!name.empty()) step["name"] = name;
  return step;
}

}  // namespace asr
