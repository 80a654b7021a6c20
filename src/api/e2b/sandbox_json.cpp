// Sessions as E2B's clients meet them.
#include <boost/json/parse.hpp>

#include "api/e2b/control_plane.hpp"
#include "api/e2b/network.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

// Some clients still want one; it has meant nothing for long.
constexpr std::string_view kClientId = "6532622b";
// A time without end, for clients that compare.
constexpr std::int64_t kNoEndMs = 365LL * 24 * 3600 * 1000;

json::object object_from(const std::string& text) {
  boost::system::error_code ec;
  json::value value = json::parse(text, ec);
  return ec || !value.is_object() ? json::object() : std::move(value.get_object());
}

std::string template_of(const json::object& labels, const std::string& environment) {
  const json::value* name = labels.if_contains(kE2bTemplateLabel);
  return name && name->is_string() ? std::string(name->get_string()) : environment;
}

}  // namespace

std::string e2b_domain(const E2bParts& parts, const RequestHead& head) {
  std::string_view host = head.headers.get("host");
  std::size_t colon = host.rfind(':');
  bool has_port =
      colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  return parts.preview_domain + std::string(has_port ? host.substr(colon) : "");
}

json::object e2b_sandbox(const E2bParts& parts, const Session& session, const RequestHead& head) {
  std::string name =
      template_of(object_from(session.record().labels), session.record().environment);
  json::object out{{"templateID", name},
                   {"alias", name},
                   {"sandboxID", session.id()},
                   {"clientID", kClientId},
                   {"envdVersion", kEnvdVersion},
                   {"envdAccessToken", parts.tokens->envd(session.id())},
                   {"trafficAccessToken", nullptr},
                   {"domain", e2b_domain(parts, head)}};
  if (session.request().preview.access == PreviewRules::Access::token)
    out["trafficAccessToken"] = parts.tokens->traffic(session.id());
  return out;
}

json::object e2b_listed(const SessionRecord& record) {
  json::object labels = object_from(record.labels);
  json::object spec = object_from(record.spec);
  std::string name = template_of(labels, record.environment);
  labels.erase(kE2bTemplateLabel);
  double cpus = 0;
  std::uint64_t memory = 0;
  std::uint64_t disk = 0;
  if (const json::value* limits = spec.if_contains("limits")) {
    cpus = limits->at("cpus").to_number<double>();
    memory = limits->at("memory").to_number<std::uint64_t>();
    disk = limits->at("disk").to_number<std::uint64_t>();
  }
  std::int64_t ends = record.expires_ms != 0 ? record.expires_ms : now_ms() + kNoEndMs;
  bool paused = record.state == "paused" || record.state == "stopped";
  json::object out{{"sandboxID", record.id},
                   {"templateID", name},
                   {"alias", name},
                   {"clientID", kClientId},
                   {"startedAt", iso_time(record.created_ms)},
                   {"endAt", iso_time(ends)},
                   {"state", paused ? "paused" : "running"},
                   {"cpuCount", std::max<std::int64_t>(1, static_cast<std::int64_t>(cpus + 0.5))},
                   {"memoryMB", memory >> 20},
                   {"diskSizeMB", disk >> 20},
                   {"envdVersion", kEnvdVersion},
                   {"metadata", std::move(labels)}};
  json::array mounts;
  if (const json::value* volumes = spec.if_contains("volumes"))
    for (const json::value& each : volumes->get_array())
      mounts.push_back({{"name", each.at("name")}, {"path", each.at("path")}});
  out["volumeMounts"] = std::move(mounts);
  return out;
}

json::object e2b_detail(const E2bParts& parts, const Session& session, const RequestHead& head) {
  json::object out = e2b_listed(session.record());
  const SessionRequest& request = session.request();
  out["envdAccessToken"] = parts.tokens->envd(session.id());
  out["domain"] = e2b_domain(parts, head);
  bool open =
      request.network.mode == NetworkMode::public_only || request.network.mode == NetworkMode::full;
  out["allowInternetAccess"] = open;
  json::object network = e2b_network_of(request.network);
  network["allowPublicTraffic"] = request.preview.access == PreviewRules::Access::anybody;
  if (!request.preview.host.empty()) network["maskRequestHost"] = request.preview.host;
  out["network"] = std::move(network);
  out["lifecycle"] = {{"onTimeout", request.at_expiry == AtExpiry::pause ? "pause" : "kill"},
                      {"autoResume", request.wake_on_traffic}};
  return out;
}

}  // namespace asr
