// How each kind of step is done again.
#include <algorithm>
#include <chrono>
#include <fstream>

#include "cli/replay.hpp"

namespace asr {

namespace {

using Clock = std::chrono::steady_clock;

// A step that takes so much longer than it did is taken to hang.
constexpr double kTimesLonger = 10;
constexpr double kSecondsLonger = 60;
constexpr std::size_t kMostInput = 3 << 20;  // fits into a request

double duration_of(const ReplayStep& step) {
  const json::value* value = step.told.if_contains("duration_ms");
  return value && value->is_number() ? value->to_number<double>() / 1000 : 0;
}

double patience_for(const ReplayStep& step) {
  return duration_of(step) * kTimesLonger + kSecondsLonger;
}

std::string path_in(const json::object& about) {
  if (about.contains("path_base64"))
    if (auto bytes = from_base64(text_at(about, "path_base64"))) return *bytes;
  return text_at(about, "path");
}

std::string query_of(const json::object& about, const std::string& user) {
  std::string query = "?path=" + percent_encode(path_in(about));
  if (!user.empty()) query += "&user=" + percent_encode(user);
  if (about.contains("mode")) query += "&mode=" + percent_encode(text_at(about, "mode"));
  return query;
}

std::string size_in_words(const json::object& about, const char* name) {
  return text_at(about, name) + " bytes";
}

const json::object& object_at(const json::object& object, std::string_view name) {
  static const json::object kNone;
  const json::value* value = object.if_contains(name);
  return value && value->is_object() ? value->get_object() : kNone;
}

ReplayOutcome outcome_of(const ReplayStep& step, std::vector<std::string> lacks,
                         std::vector<Difference> differences) {
  using Kind = ReplayOutcome::Kind;
  Kind kind = !differences.empty() ? Kind::differs : lacks.empty() ? Kind::same : Kind::lacks;
  return {&step, kind, std::move(lacks), std::move(differences)};
}

}  // namespace

Result<Replay::Answer> Replay::put_file(const json::object& about, const std::string& user,
                                        Lacks& lacks) {
  auto found = material_.files.find(about);
  if (found) return upload(*found, "/files" + query_of(about, user));
  lacks.push_back("the file " + printable(path_in(about)) + " of " + size_in_words(about, "size"));
  return Answer{};
}

void Replay::put_env(const ReplayStep& step, json::object& body, Lacks& lacks) const {
  const json::value* names = step.told.if_contains("env");
  if (!names || !names->is_array()) return;
  json::object env;
  for (const json::value& name : names->get_array()) {
    if (!name.is_string()) continue;
    std::string text(name.get_string());
    if (auto found = material_.env.find(text); found != material_.env.end())
      env[text] = found->second;
    else
      lacks.push_back("the value of " + printable(text));
  }
  if (!env.empty()) body["env"] = std::move(env);
}

Result<json::object> Replay::command_body(const ReplayStep& step, Lacks& lacks) {
  json::object body;
  for (const char* name : {"argv", "cwd", "user"})
    if (const json::value* value = step.told.if_contains(name)) body[name] = *value;
  put_env(step, body, lacks);
  if (const json::value* size = step.told.if_contains("terminal")) body["pty"] = *size;
  for (const auto& [name, value] : object_at(step.told, "limits")) body[name] = value;
  auto given = step.number ? material_.input.find(*step.number) : material_.input.end();
  if (given != material_.input.end()) {
    std::ifstream file(given->second, std::ios::binary);
    std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file || data.size() > kMostInput)
      return fail(Errc::invalid, "cannot take " + given->second.native() + " as input");
    body["stdin_base64"] = base64(data);
  } else if (step.told.contains("stdin_bytes")) {
    lacks.push_back("its input of " + size_in_words(step.told, "stdin_bytes"));
  }
  return body;
}

Result<void> Replay::begin_command(const ReplayStep& step, ReplayOutcome& outcome) {
  json::object body = TRY(command_body(step, outcome.lacks));
  body["background"] = true;
  Answer answer = TRY(ask("POST", "/commands", body));
  outcome.kind = ReplayOutcome::Kind::begun;
  if (!answer.refused.empty()) {
    outcome = outcome_of(step, std::move(outcome.lacks), std::move(answer.refused));
    return {};
  }
  std::string command = text_at(answer.body, "command_id");
  commands_[step.text("command_id")] = command;
  pending_.push_back({&step, std::move(command), outcome.lacks});
  return {};
}

Result<ReplayOutcome> Replay::redo_command(const ReplayStep& step) {
  Lacks lacks;
  json::object body = TRY(command_body(step, lacks));
  if (!body.contains("timeout_s") && most_seconds_ == 0) body["timeout_s"] = patience_for(step);
  Answer answer = TRY(ask("POST", "/commands", body));
  if (!answer.refused.empty()) return outcome_of(step, std::move(lacks), std::move(answer.refused));
  commands_[step.text("command_id")] = text_at(answer.body, "command_id");
  return outcome_of(step, std::move(lacks), compare_command(step.told, answer.body.as_object()));
}

// It has its time, and a little more.
Result<ReplayOutcome> Replay::settle(const Pending& pending) {
  const ReplayStep& step = *pending.step;
  auto deadline = Clock::now() +
                  std::chrono::milliseconds(static_cast<std::int64_t>(patience_for(step) * 1000));
  for (;;) {
    Answer answer = TRY(ask("GET", "/commands/" + percent_encode(pending.command) + "?wait_s=10"));
    if (!answer.refused.empty()) return outcome_of(step, pending.lacks, std::move(answer.refused));
    if (text_at(answer.body, "status") == "running" && Clock::now() < deadline) continue;
    return outcome_of(step, pending.lacks, compare_command(step.told, answer.body.as_object()));
  }
}

Result<ReplayOutcome> Replay::redo_cell(const ReplayStep& step) {
  Lacks lacks;
  json::object body{{"code", step.text("code")}};
  std::string context = step.text("context_id");
  if (auto known = contexts_.find(context); known != contexts_.end())
    body["context"] = known->second;
  else if (context == step.text("language"))
    body["language"] = context;
  else
    body["context"] = context;
  put_env(step, body, lacks);
  if (const json::value* files = step.told.if_contains("files"); files && files->is_array())
    for (const json::value& file : files->get_array()) {
      if (!file.is_object()) continue;
      Answer put = TRY(put_file(file.get_object(), "", lacks));
      if (!put.refused.empty()) return outcome_of(step, std::move(lacks), std::move(put.refused));
    }
  if (step.told.contains("questions"))
    lacks.push_back("answers to " + step.text("questions") + " questions");
  if (const json::value* time = step.told.if_contains("timeout_s"))
    body["timeout_s"] = *time;
  else if (most_seconds_ == 0)
    body["timeout_s"] = patience_for(step);
  if (step.text("status") == "interrupted") body["timeout_s"] = std::max(0.05, duration_of(step));
  Answer answer = TRY(ask("POST", "/execute", body));
  if (!answer.refused.empty()) return outcome_of(step, std::move(lacks), std::move(answer.refused));
  return outcome_of(step, std::move(lacks), compare_cell(step.told, answer.body.as_object()));
}

Result<ReplayOutcome> Replay::redo_file(const ReplayStep& step) {
  Lacks lacks;
  Answer answer;
  std::string operation = step.text("operation");
  std::string user = step.text("user");
  std::string as = user.empty() ? "" : "?user=" + percent_encode(user);
  std::string path = path_in(step.told);
  if (operation == "write") {
    answer = TRY(put_file(step.told, user, lacks));
  } else if (operation == "unpack") {
    if (auto found = material_.files.find(step.told))
      answer = TRY(upload(*found, "/files/archive" + query_of(step.told, user)));
    else
      lacks.push_back("the archive of " + size_in_words(step.told, "size"));
  } else if (operation == "remove") {
    answer = TRY(ask("DELETE", "/files" + query_of(step.told, user)));
  } else if (operation == "make_directory") {
    answer = TRY(ask("POST", "/files/mkdir" + as, json::object{{"path", path}}));
  } else if (operation == "move" || operation == "copy") {
    json::object body{{"from", path}, {"to", step.text("to")}};
    answer = TRY(ask("POST", "/files/" + operation + as, body));
  } else {
    lacks.push_back("a way to do this");
  }
  return outcome_of(step, std::move(lacks), std::move(answer.refused));
}

Result<ReplayOutcome> Replay::redo_context(const ReplayStep& step) {
  std::string operation = step.text("operation");
  std::string id = step.text("context_id");
  if (operation == "create") {
    json::object body{{"language", step.text("language")}};
    if (step.told.contains("cwd")) body["cwd"] = step.text("cwd");
    Answer answer = TRY(ask("POST", "/contexts", body));
    if (answer.refused.empty()) contexts_[id] = text_at(answer.body, "context_id");
    return outcome_of(step, {}, std::move(answer.refused));
  }
  auto known = contexts_.find(id);
  std::string path = "/contexts/" + percent_encode(known == contexts_.end() ? id : known->second);
  Answer answer =
      operation == "remove" ? TRY(ask("DELETE", path)) : TRY(ask("POST", path + "/restart"));
  return outcome_of(step, {}, std::move(answer.refused));
}

// A signal to a command, or a change of the whole state.
Result<ReplayOutcome> Replay::redo_other(const ReplayStep& step) {
  Answer answer;
  if (step.kind == "signal") {
    std::string command = commands_[step.text("command_id")];
    const json::value* signal = step.told.if_contains("signal");
    if (command.empty() || !signal) return outcome_of(step, {"the command"}, {});
    json::object body{{"signal", *signal}};
    answer = TRY(ask("POST", "/commands/" + percent_encode(command) + "/signal", body));
  } else if (step.kind == "state") {
    if (step.text("operation") == "merge") return outcome_of(step, {"the branch"}, {});
    json::object body;
    if (step.told.contains("name")) body["name"] = step.text("name");
    answer = TRY(ask("POST", "/" + percent_encode(step.text("operation")), body));
  } else {
    return outcome_of(step, {"a way to do this"}, {});
  }
  return outcome_of(step, {}, std::move(answer.refused));
}

Result<ReplayOutcome> Replay::redo(const ReplayStep& step) {
  if (step.told.contains("left_out")) return outcome_of(step, {"what was done"}, {});
  if (step.kind == "cell") return redo_cell(step);
  if (step.kind == "file") return redo_file(step);
  if (step.kind == "context") return redo_context(step);
  if (step.kind != "command") return redo_other(step);
  if (!step.overlaps) return redo_command(step);
  ReplayOutcome outcome{&step, ReplayOutcome::Kind::same, {}, {}};
  TRY(begin_command(step, outcome));
  return outcome;
}

}  // namespace asr
