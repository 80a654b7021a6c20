#include "cli/replay.hpp"

#include <fstream>

namespace asr {

namespace {

const json::object& object_at(const json::object& object, std::string_view name) {
  static const json::object kNone;
  const json::value* value = object.if_contains(name);
  return value && value->is_object() ? value->get_object() : kNone;
}

// Credentials are not in a history, and hosts without theirs answer otherwise.
json::object network_of(const json::object& about) {
  json::object network = object_at(about, "network");
  if (json::value* allow = network.if_contains("allow"); allow && allow->is_array())
    for (json::value& host : allow->get_array())
      if (host.is_object()) host.get_object().erase("credentials");
  return network;
}

}  // namespace

std::string_view to_string(ReplayOutcome::Kind kind) noexcept {
  constexpr std::string_view kWords[] = {"same", "differs", "lacks", "begun"};
  return kWords[static_cast<std::size_t>(kind)];
}

Result<std::string> Replay::make_session(Remote& remote, const json::object& about,
                                         const std::string& environment,
                                         const ReplayMaterial& material) {
  json::object body;
  for (const char* name : {"environment", "preset", "tier", "limits", "auto_checkpoint"})
    if (const json::value* value = about.if_contains(name)) body[name] = *value;
  if (!environment.empty()) body["environment"] = environment;
  if (json::object network = network_of(about); !network.empty())
    body["network"] = std::move(network);
  json::object env;
  if (const json::value* names = about.if_contains("env"); names && names->is_array())
    for (const json::value& name : names->get_array())
      if (auto found = material.env.find(text_at(json::object{{"name", name}}, "name"));
          found != material.env.end())
        env[found->first] = found->second;
  if (!env.empty()) body["env"] = std::move(env);
  json::value made = TRY(remote.call("POST", "/api/sessions", body));
  return text_at(made, "session_id");
}

Result<std::vector<std::string>> Replay::furnish(const json::object& about) {
  std::vector<std::string> lacks;
  if (const json::value* names = about.if_contains("env"); names && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string() && !material_.env.contains(std::string(name.get_string())))
        lacks.push_back("the value of " + std::string(name.get_string()));
  if (const json::value* files = about.if_contains("files"); files && files->is_array())
    for (const json::value& file : files->get_array())
      if (file.is_object()) {
        Answer put = TRY(put_file(file.get_object(), "", lacks));
        if (!put.refused.empty()) lacks.push_back(put.refused[0].after);
      }
  if (const json::value* origin = about.if_contains("origin"))
    lacks.push_back("the state of " + printable(text_at(*origin, "session_id")) +
                    ", of which it is a branch");
  if (about.contains("files_left_out")) lacks.push_back("files that it came with");
  if (const json::value* volumes = about.if_contains("volumes"); volumes && volumes->is_array())
    for (const json::value& volume : volumes->get_array())
      lacks.push_back("the volume " + printable(text_at(volume, "name")));
  return lacks;
}

Result<Replay::Answer> Replay::ask(const std::string& method, const std::string& rest,
                                   const json::value& body) {
  ClientRequest request;
  request.method = method;
  if (!body.is_null()) {
    request.body = to_text(body);
    request.headers.add("Content-Type", "application/json");
  }
  ClientResponse response = TRY(remote_.exchange(std::move(request), session_path(session_, rest)));
  if (response.status >= 300)
    return Answer{nullptr, {{"answer", "it was done", error_in(response).what}}};
  if (response.body.empty()) return Answer{};
  return Answer{TRY(parse_json(response.body)), {}};
}

Result<Replay::Answer> Replay::upload(const std::filesystem::path& file, const std::string& rest) {
  std::ifstream in(file, std::ios::binary);
  std::error_code ec;
  auto size = std::filesystem::file_size(file, ec);
  if (!in || ec) return fail(Errc::not_found, "cannot read " + file.native());
  ClientRequest request;
  request.method = "PUT";
  request.body_length = static_cast<std::int64_t>(size);
  request.read_body = [&](char* buffer, std::size_t most) -> std::size_t {
    in.read(buffer, static_cast<std::streamsize>(most));
    return static_cast<std::size_t>(in.gcount());
  };
  ClientResponse response = TRY(remote_.exchange(std::move(request), session_path(session_, rest)));
  if (response.status >= 300)
    return Answer{nullptr, {{"answer", "it was done", error_in(response).what}}};
  return Answer{};
}

Result<void> Replay::run(const ReplayHistory& history, std::uint64_t until, const See& see) {
  const json::value* limit = object_at(history.session, "limits").if_contains("timeout_s");
  most_seconds_ = limit && limit->is_number() ? limit->to_number<double>() : 0;
  // Those that ended before this moment come first. False: it is enough.
  auto settle_until = [&](std::int64_t moment) -> Result<bool> {
    for (auto it = pending_.begin(); it != pending_.end();) {
      const ReplayStep& step = *it->step;
      bool is_later = step.ended_us > moment || step.was_running() ||
                      (until != 0 && step.number.value_or(0) > until);
      if (is_later) {
        ++it;
        continue;
      }
      ReplayOutcome outcome = TRY(settle(*it));
      it = pending_.erase(it);
      if (!see(outcome)) return false;
    }
    return true;
  };
  for (const ReplayStep& step : history.steps) {
    if (!TRY(settle_until(step.began_us))) return {};
    ReplayOutcome outcome = TRY(redo(step));
    // The end of what was only begun is still to come, unless nobody has seen it.
    bool is_begun = outcome.kind == ReplayOutcome::Kind::begun;
    if (is_begun && !step.was_running()) continue;
    if (!see(outcome)) return {};
  }
  TRY(settle_until(INT64_MAX - 1));
  return {};
}

}  // namespace asr
