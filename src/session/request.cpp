#include "session/request.hpp"

#include <cmath>

#include "base/units.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kPersistentDisk = 1ULL << 30;

std::string text_of(const json::value& value) { return std::string(value.get_string()); }

std::map<std::string, std::string> texts_of(const json::value& object) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : object.get_object()) out[std::string(name)] = text_of(value);
  return out;
}

// A number of bytes, or "512M".
Result<std::uint64_t> bytes_of(const json::value& value, std::string_view where) {
  if (value.is_number()) return value.to_number<std::uint64_t>();
  auto bytes = parse_bytes(value.get_string());
  if (!bytes) return fail(Errc::invalid, std::string(where) + ": " + bytes.error().what);
  return *bytes;
}

std::chrono::milliseconds millis_of(const json::value& seconds) {
  return std::chrono::milliseconds(std::llround(seconds.to_number<double>() * 1000));
}

std::chrono::seconds seconds_of(const json::value& value) {
  return std::chrono::seconds(static_cast<std::int64_t>(std::ceil(value.to_number<double>())));
}

Result<void> read_limits(const json::object& body, Limits& limits) {
  for (const auto& [name, value] : body) {
    std::string where = "/limits/" + std::string(name);
    if (name == "memory") limits.memory_bytes = TRY(bytes_of(value, where));
    if (name == "disk") limits.disk_bytes = TRY(bytes_of(value, where));
    if (name == "output") limits.output_bytes = TRY(bytes_of(value, where));
    if (name == "cpus")
      limits.milli_cpus = static_cast<std::uint32_t>(std::lround(value.to_number<double>() * 1000));
    if (name == "pids") limits.pids = value.to_number<std::uint32_t>();
    if (name == "inodes") limits.inodes = value.to_number<std::uint64_t>();
    if (name == "open_files") limits.open_files = value.to_number<std::uint32_t>();
    if (name == "timeout_s") limits.wall_time = millis_of(value);
    if (name == "cpu_time_s") limits.cpu_time = millis_of(value);
  }
  return {};
}

// The same error, with its place in front.
tl::unexpected<Error> at(const std::string& where, const Error& error) {
  return fail(error.code, where + ": " + error.what, error.hint);
}

// Which limit a complaint of the policy is about.
std::string place_of(const Error& error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"memory", "memory"}, {"disk", "disk"},    {"cpu", "cpus"},
      {"pids", "pids"},     {"inode", "inodes"}, {"open files", "open_files"},
      {"output", "output"}};
  for (const auto& [word, name] : kNames)
    if (error.what.starts_with(word)) return "/limits/" + std::string(name);
  if (error.what.find("volume") != std::string::npos) return "/volumes";
  return "/limits";
}

Result<InitialFile> file_of(const json::object& body, const std::string& where) {
  InitialFile file;
  file.path = text_of(body.at("path"));
  if (!file.path.starts_with('/'))
    return fail(Errc::invalid, where + "/path: must be absolute", "such as /workspace/name");
  if (const json::value* text = body.if_contains("content")) file.content = text_of(*text);
  if (const json::value* coded = body.if_contains("content_base64")) {
    auto bytes = from_base64(coded->get_string());
    if (!bytes) return at(where + "/content_base64", bytes.error());
    file.content = std::move(*bytes);
  }
  if (const json::value* mode = body.if_contains("mode"))
    file.mode = mode->to_number<std::uint32_t>() & 0777;
  return file;
}

Result<std::vector<InitialFile>> files_of(const json::object& body) {
  std::vector<InitialFile> all;
  const json::value* files = body.if_contains("files");
  if (!files) return all;
  for (const json::value& file : files->get_array())
    all.push_back(TRY(file_of(file.get_object(), "/files/" + std::to_string(all.size()))));
  return all;
}

VolumeMount mount_of(const json::object& body) {
  VolumeMount mount;
  mount.name = text_of(body.at("name"));
  mount.path = text_of(body.at("path"));
  if (const json::value* flag = body.if_contains("read_only")) mount.read_only = flag->get_bool();
  return mount;
}

// The spec with a disk and volumes where the sandbox will have some, under names of no matter: they
// change what is allowed.
SandboxSpec as_made(const SessionRequest& request) {
  SandboxSpec spec = request.spec;
  if (request.persistent) spec.disk = PersistentDisk{"disk"};
  for (const VolumeMount& mount : request.volumes)
    spec.volumes.push_back({"volume", mount.path, mount.read_only});
  return spec;
}

Result<PreviewRules> preview_of(const json::object& body) {
  PreviewRules rules;
  if (const json::value* access = body.if_contains("access"))
    rules.access = access->get_string() == "token" ? PreviewRules::Access::token
                                                   : PreviewRules::Access::anybody;
  if (const json::value* host = body.if_contains("host")) rules.host = text_of(*host);
  // It becomes a header.
  for (char c : rules.host)
    if (c <= ' ' || c > '~' || c == ',')
      return fail(Errc::invalid, "/preview/host: no name of a host",
                  "such as app.example.org or localhost:${PORT}");
  return rules;
}

}  // namespace

std::string_view to_string(AtExpiry what) noexcept {
  return what == AtExpiry::pause ? "pause" : "end";
}

std::string PreviewRules::host_for(std::uint16_t port) const {
  constexpr std::string_view kPort = "${PORT}";
  std::string name = host.empty() ? "localhost:" + std::string(kPort) : host;
  for (std::size_t at; (at = name.find(kPort)) != std::string::npos;)
    name.replace(at, kPort.size(), std::to_string(port));
  return name;
}

Result<SessionRequest> session_request_from(const json::object& body) {
  SessionRequest request;
  Preset preset = Preset::standard;
  if (const json::value* name = body.if_contains("preset"))
    preset = TRY(parse_preset(name->get_string()));
  request.preset = preset;
  request.spec = spec_of(preset);
  // A session without network has its own loopback: servers inside want to be previewed.
  if (preset == Preset::standard) request.spec.network = Network::loopback;
  if (const json::value* name = body.if_contains("environment"))
    request.environment = text_of(*name);
  constexpr std::string_view kSnapshot = "snapshot:";
  constexpr std::string_view kTemplate = "template:";
  if (request.environment.starts_with(kSnapshot)) {
    request.snapshot = request.environment.substr(kSnapshot.size());
  } else if (request.environment.starts_with(kTemplate)) {
    request.image = request.environment.substr(kTemplate.size());
    if (request.image.empty() || !is_utf8(request.image))
      return fail(Errc::invalid, "/environment: the template has no name");
  } else {
    auto environment = parse_environment(request.environment);
    if (!environment) return at("/environment", environment.error());
    request.spec.environment = std::move(*environment);
  }
  if (const json::value* name = body.if_contains("provider")) request.provider = text_of(*name);
  if (const json::value* tier = body.if_contains("tier"))
    request.spec.tier = TRY(parse_tier(tier->get_string()));
  if (const json::value* flag = body.if_contains("persistent"))
    request.persistent = flag->get_bool();
  if (const json::value* flag = body.if_contains("keep_artifacts"))
    request.keep_artifacts = flag->get_bool();
  if (const json::value* flag = body.if_contains("auto_checkpoint"))
    request.auto_checkpoint = flag->get_bool();
  if (request.auto_checkpoint && request.persistent)
    return fail(Errc::invalid, "/auto_checkpoint: a session with a disk of its own cannot be saved",
                "leave out one of persistent and auto_checkpoint");
  if (const json::value* flag = body.if_contains("history")) request.history = flag->get_bool();
  // A disk costs no memory, and no more of the host's than is written.
  if (request.persistent) request.spec.limits.disk_bytes = kPersistentDisk;
  if (const json::value* limits = body.if_contains("limits"))
    TRY(read_limits(limits->get_object(), request.spec.limits));
  if (const json::value* volumes = body.if_contains("volumes"))
    for (const json::value& volume : volumes->get_array())
      request.volumes.push_back(mount_of(volume.get_object()));
  if (const json::value* network = body.if_contains("network"))
    request.network = TRY(network_request_from(network->get_object()));
  if (request.network.needs_proxy()) request.spec.network = Network::proxied;
  if (request.network.mode == NetworkMode::full) request.spec.network = Network::full;
  if (const json::value* env = body.if_contains("env")) request.env = texts_of(*env);
  if (const json::value* labels = body.if_contains("labels")) request.labels = texts_of(*labels);
  request.files = TRY(files_of(body));
  if (const json::value* ttl = body.if_contains("ttl_s")) request.ttl = seconds_of(*ttl);
  if (const json::value* idle = body.if_contains("idle_s")) request.idle = seconds_of(*idle);
  if (const json::value* cwd = body.if_contains("cwd")) request.cwd = text_of(*cwd);
  if (const json::value* user = body.if_contains("user")) request.user = text_of(*user);
  if (const json::value* what = body.if_contains("at_expiry"))
    request.at_expiry = what->get_string() == "pause" ? AtExpiry::pause : AtExpiry::end;
  if (const json::value* flag = body.if_contains("wake_on_traffic"))
    request.wake_on_traffic = flag->get_bool();
  if (const json::value* preview = body.if_contains("preview"))
    request.preview = TRY(preview_of(preview->get_object()));
  if (auto fits = check(as_made(request)); !fits) return at(place_of(fits.error()), fits.error());
  return request;
}

json::object json_of(const Limits& limits) {
  auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  };
  return {{"memory", limits.memory_bytes},
          {"cpus", static_cast<double>(limits.milli_cpus) / 1000},
          {"pids", limits.pids},
          {"disk", limits.disk_bytes},
          {"inodes", limits.inodes},
          {"open_files", limits.open_files},
          {"timeout_s", seconds(limits.wall_time)},
          {"cpu_time_s", seconds(limits.cpu_time)},
          {"output", limits.output_bytes}};
}

json::object json_of(const SessionRequest& request) {
  json::object out{{"environment", request.environment},  {"provider", request.provider},
                   {"preset", to_string(request.preset)}, {"tier", to_string(request.spec.tier)},
                   {"network", json_of(request.network)}, {"limits", json_of(request.spec.limits)},
                   {"persistent", request.persistent}};
  if (request.ttl) out["ttl_s"] = request.ttl->count();
  if (request.idle) out["idle_s"] = request.idle->count();
  json::array volumes;
  for (const VolumeMount& mount : request.volumes)
    volumes.push_back({{"name", mount.name}, {"path", mount.path}, {"read_only", mount.read_only}});
  if (!volumes.empty()) out["volumes"] = std::move(volumes);
  if (!request.history) out["history"] = false;
  if (!request.provider_reason.empty()) out["provider_reason"] = request.provider_reason;
  if (request.auto_checkpoint) out["auto_checkpoint"] = true;
  if (!request.cwd.empty()) out["cwd"] = request.cwd;
  if (!request.user.empty()) out["user"] = request.user;
  if (request.at_expiry != AtExpiry::end) out["at_expiry"] = to_string(request.at_expiry);
  if (request.wake_on_traffic) out["wake_on_traffic"] = true;
  if (request.preview != PreviewRules()) {
    json::object preview;
    if (request.preview.access == PreviewRules::Access::token) preview["access"] = "token";
    if (!request.preview.host.empty()) preview["host"] = request.preview.host;
    out["preview"] = std::move(preview);
  }
  if (!request.snapshot.empty()) out["base"] = to_string(request.spec.environment);
  if (request.origin)
    out["origin"] = {{"session_id", request.origin->session},
                     {"checkpoint", request.origin->checkpoint}};
  return out;
}

std::string secrets_of(const SessionRequest& request) {
  json::object env;
  for (const auto& [name, value] : request.env) env[name] = value;
  return to_text(json::object{{"env", std::move(env)},
                              {"network", json_of(request.network, Secrets::included)}});
}

Result<SessionRequest> stored_request(const std::string& kept, const std::string& secrets) {
  json::value body = TRY(parse_json(kept));
  json::value sealed = TRY(parse_json(secrets));
  if (!body.is_object() || !sealed.is_object()) return fail(Errc::internal, "a record is damaged");
  for (auto& [name, value] : sealed.get_object()) body.get_object()[name] = std::move(value);
  SessionRequest request = TRY(session_request_from(body.get_object()));
  // Nobody asks for these in a request: they are what came of one.
  if (const json::value* base = body.get_object().if_contains("base"))
    request.spec.environment = TRY(parse_environment(text_of(*base)));
  if (const json::value* why = body.get_object().if_contains("provider_reason"))
    request.provider_reason = text_of(*why);
  if (const json::value* origin = body.get_object().if_contains("origin"))
    request.origin = Origin{text_of(origin->at("session_id")),
                            origin->at("checkpoint").to_number<std::uint64_t>()};
  return request;
}

Result<CommandRequest> command_request_from(const json::object& body) {
  CommandRequest request;
  Command& command = request.command;
  const json::value* text = body.if_contains("command");
  const json::value* argv = body.if_contains("argv");
  if ((text != nullptr) == (argv != nullptr))
    return fail(Errc::invalid, "give either \"command\" or \"argv\"",
                "\"command\" is a text for the shell, \"argv\" a list of words");
  if (text)
    command.argv = {"/bin/sh", "-c", text_of(*text)};
  else
    for (const json::value& word : argv->get_array()) command.argv.push_back(text_of(word));
  if (const json::value* cwd = body.if_contains("cwd")) command.cwd = text_of(*cwd);
  if (const json::value* env = body.if_contains("env")) command.env = texts_of(*env);
  for (const auto& [name, value] : command.env) request.env_names.push_back(name);
  if (const json::value* flag = body.if_contains("history")) request.history = flag->get_bool();
  if (const json::value* flag = body.if_contains("effects")) command.effects = flag->get_bool();
  if (const json::value* user = body.if_contains("user")) command.user = text_of(*user);
  if (const json::value* data = body.if_contains("stdin")) request.stdin_data = text_of(*data);
  if (const json::value* data = body.if_contains("stdin_base64"))
    request.stdin_data = TRY(from_base64(data->get_string()));
  if (const json::value* open = body.if_contains("stdin_open"))
    request.stdin_open = open->get_bool();
  if (const json::value* time = body.if_contains("timeout_s")) command.wall_time = millis_of(*time);
  if (const json::value* time = body.if_contains("cpu_time_s")) command.cpu_time = millis_of(*time);
  if (const json::value* limit = body.if_contains("output_bytes"))
    command.output_bytes = limit->to_number<std::uint64_t>();
  if (const json::value* flag = body.if_contains("background"))
    request.background = flag->get_bool();
  if (const json::value* pty = body.if_contains("pty")) {
    TerminalSize size;
    const json::object& wanted = pty->get_object();
    if (const json::value* rows = wanted.if_contains("rows"))
      size.rows = rows->to_number<std::uint16_t>();
    if (const json::value* columns = wanted.if_contains("columns"))
      size.columns = columns->to_number<std::uint16_t>();
    command.terminal = size;
  }
  if (!request.stdin_data.empty() || request.stdin_open) command.stdin_mode = StdinMode::pipe;
  return request;
}

Result<CellRequest> cell_request_from(const json::object& body) {
  CellRequest request;
  request.code = text_of(body.at("code"));
  if (const json::value* name = body.if_contains("language")) request.language = text_of(*name);
  if (const json::value* name = body.if_contains("context")) request.context = text_of(*name);
  if (const json::value* time = body.if_contains("timeout_s")) request.timeout = millis_of(*time);
  if (const json::value* env = body.if_contains("env")) request.env = texts_of(*env);
  if (const json::value* flag = body.if_contains("history")) request.history = flag->get_bool();
  if (const json::value* flag = body.if_contains("effects")) request.effects = flag->get_bool();
  request.files = TRY(files_of(body));
  return request;
}

}  // namespace asr
