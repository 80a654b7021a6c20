#include "api/e2b/sandbox_request.hpp"

#include <charconv>
#include <cmath>
#include <ctime>

#include "api/e2b/fields.hpp"
#include "api/e2b/network.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostMetadata = 64;
constexpr std::size_t kMostVariables = 500;
constexpr std::size_t kMostVolumeMounts = 8;

Result<void> check_metadata(const std::map<std::string, std::string>& metadata) {
  for (const auto& [name, value] : metadata) {
    if (name.empty() || name.size() > 128 || value.size() > 1024)
      return fail(Errc::invalid, "metadata: a name has up to 128 characters, a value up to 1024");
    if (name == kE2bTemplateLabel)
      return fail(Errc::invalid, "metadata: the name " + name + " is taken");
  }
  return {};
}

Result<void> check_variables(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) {
    bool plain = !name.empty() && name.size() <= 256 && (name[0] < '0' || name[0] > '9');
    for (char c : name)
      plain = plain && ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                        (c >= '0' && c <= '9') || c == '_');
    if (!plain || value.size() > 65536 || value.find('\0') != std::string::npos)
      return fail(Errc::invalid, "envVars: " + name.substr(0, 64) + " cannot be a variable");
  }
  return {};
}

Result<std::vector<VolumeMount>> mounts_of(const E2bFields& fields) {
  std::vector<VolumeMount> mounts;
  const json::array* wanted = TRY(fields.array("volumeMounts", kMostVolumeMounts));
  if (!wanted) return mounts;
  for (const json::value& each : *wanted) {
    if (!each.is_object()) return fail(Errc::invalid, "volumeMounts must be a list of objects");
    E2bFields mount(each.get_object(), "volumeMounts");
    mounts.push_back({TRY(mount.text("name")), TRY(mount.text("path"))});
  }
  return mounts;
}

Result<void> refuse_the_impossible(const E2bFields& fields) {
  const json::object* iam = TRY(fields.object("iam"));
  if (iam && !iam->empty())
    return fail(Errc::unsupported, "iam: this server gives out no identity tokens",
                "use secrets and network.rules for credentials");
  if (fields.has("mcp"))
    return fail(Errc::unsupported, "mcp: this server has no MCP gateway template",
                "start the MCP server inside, and reach it by getHost()");
  if (!TRY(fields.flag("autoPauseMemory")).value_or(true))
    return fail(Errc::unsupported, "autoPauseMemory: a pause keeps the memory here",
                "leave it out");
  return {};
}

}  // namespace

SandboxSpec e2b_spec(const E2bOptions& options) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.network = Network::proxied;
  spec.limits.memory_bytes = options.memory_bytes;
  spec.limits.milli_cpus = options.milli_cpus;
  spec.limits.disk_bytes = options.disk_bytes;
  spec.limits.pids = 1024;
  return spec;
}

Result<std::chrono::seconds> e2b_timeout_from(const json::object& body, std::int64_t standard,
                                              const E2bOptions& options) {
  auto given = TRY(E2bFields(body).number_if("timeout", INT64_MIN, INT64_MAX));
  std::int64_t seconds = given.value_or(standard);
  if (seconds <= 0) return fail(Errc::invalid, "Timeout must be greater than 0");
  if (seconds > options.most_time.count())
    return fail(Errc::invalid, "Timeout cannot be greater than " +
                                   std::to_string(options.most_time.count() / 3600) + " hours");
  return std::chrono::seconds(seconds);
}

Result<E2bCreate> e2b_create_from(const json::object& body, E2bGeneration generation,
                                  const E2bOptions& options) {
  E2bFields fields(body);
  TRY(refuse_the_impossible(fields));
  E2bCreate create;
  create.template_name = TRY(fields.text("templateID"));
  SessionRequest& request = create.request;
  request.spec = e2b_spec(options);
  std::int64_t standard = generation == E2bGeneration::first ? 15 : 300;
  request.ttl = TRY(e2b_timeout_from(body, standard, options));
  request.idle = std::chrono::seconds(0);
  request.labels = TRY(fields.texts("metadata", kMostMetadata - 1));
  TRY(check_metadata(request.labels));
  request.env = TRY(fields.texts("envVars", kMostVariables));
  TRY(check_variables(request.env));
  static const json::object kNothing;
  const json::object* network = TRY(fields.object("network"));
  if (!network) network = &kNothing;
  auto internet = TRY(fields.flag("allow_internet_access"));
  request.network = TRY(e2b_network_from(*network, internet, options.internet));
  request.preview = TRY(e2b_preview_from(*network));
  if (TRY(fields.flag("autoPause")).value_or(false)) request.at_expiry = AtExpiry::pause;
  if (const json::object* resume = TRY(fields.object("autoResume")))
    request.wake_on_traffic = TRY(E2bFields(*resume, "autoResume").flag("enabled")).value_or(false);
  request.volumes = TRY(mounts_of(fields));
  return create;
}

Result<std::map<std::string, std::string>> e2b_metadata_from(std::string_view parameter) {
  std::map<std::string, std::string> metadata;
  for (auto& [name, value] : parse_query(parameter)) {
    auto key = percent_decode(name);
    auto text = percent_decode(value);
    if (!key || !text) return fail(Errc::invalid, "metadata is not encoded as it should be");
    metadata[*key] = *text;
  }
  TRY(check_metadata(metadata));
  return metadata;
}

Result<SessionFilter> e2b_filter_from(const RequestHead& head, E2bGeneration generation) {
  SessionFilter filter;
  if (auto metadata = head.parameter("metadata"); metadata && !metadata->empty())
    filter.labels = TRY(e2b_metadata_from(*metadata));
  if (generation == E2bGeneration::first) {
    filter.states = {"ready"};
    return filter;
  }
  // One text with commas, or the parameter several times.
  std::string states;
  for (auto& [name, value] : parse_query(head.query))
    if (name == "state") states += value + ",";
  for (std::size_t at = 0; at < states.size();) {
    std::size_t comma = states.find(',', at);
    std::string state = states.substr(at, comma - at);
    at = comma + 1;
    if (state == "running")
      filter.states.insert(filter.states.end(), {"creating", "ready"});
    else if (state == "paused")
      filter.states.insert(filter.states.end(), {"paused", "stopped"});
    else if (!state.empty())
      return fail(Errc::invalid, "state must be running, paused, or both");
  }
  if (filter.states.empty()) filter.states = {"creating", "ready", "paused", "stopped"};
  if (auto after = head.parameter("startedAfter"); after && !after->empty())
    filter.created_after_ms = TRY(e2b_time_from(*after));
  if (auto name = head.parameter("template"); name && !name->empty())
    filter.labels[std::string(kE2bTemplateLabel)] = *name;
  if (auto order = head.parameter("order"); order && *order == "asc")
    filter.order = SessionFilter::Order::oldest_first;
  else if (order && !order->empty() && *order != "desc")
    return fail(Errc::invalid, "order must be asc or desc");
  if (auto limit = head.parameter("limit"); limit && !limit->empty()) {
    auto [end, ec] = std::from_chars(limit->data(), limit->data() + limit->size(), filter.limit);
    if (ec != std::errc() || end != limit->data() + limit->size() || filter.limit < 1 ||
        filter.limit > 100)
      return fail(Errc::invalid, "limit must be a whole number from 1 to 100");
  }
  filter.cursor = head.parameter("nextToken").value_or("");
  return filter;
}

std::string e2b_sandbox_id(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find('-'), text.size())));
}

Result<std::int64_t> e2b_time_from(std::string_view text) {
  std::tm time{};
  std::string copy(text);
  const char* rest = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  auto bad = [] { return fail(Errc::invalid, "a time looks like 2026-01-31T12:00:00.000Z"); };
  if (!rest) return bad();
  std::int64_t ms = static_cast<std::int64_t>(::timegm(&time)) * 1000;
  if (*rest == '.') {
    std::int64_t unit = 100;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10) ms += (*rest - '0') * unit;
  }
  if ((*rest == 'Z' || *rest == 'z') && rest[1] == '\0') return ms;
  int hours = 0;
  int minutes = 0;
  char sign = *rest;
  if ((sign == '+' || sign == '-') && std::sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2)
    return ms - (sign == '-' ? -1 : 1) * (hours * 60 + minutes) * 60'000;
  return bad();
}

}  // namespace asr
