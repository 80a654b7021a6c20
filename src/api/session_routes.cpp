// Sessions: create, list, look at, change, pause, resume, share, end.
#include <boost/json/serialize.hpp>

#include "api/api.hpp"
#include "api/idempotency.hpp"
#include "base/clock.hpp"
#include "store/share_records.hpp"

namespace asr {

namespace {

asio::awaitable<Result<Reply>> create_once(ApiParts parts, CallPtr call) {
  SessionRequest request = CO_TRY(session_request_from(call->body));
  auto creating = parts.sessions.create(call->caller, std::move(request));
  auto session = CO_TRY(co_await std::move(creating));
  co_return Reply{201, session->describe(), false, {}};
}

asio::awaitable<Result<Reply>> create(ApiParts parts, CallPtr call) {
  auto working = [](ApiParts with, CallPtr what) { return create_once(with, std::move(what)); };
  auto reply = co_await once(parts, call, working);
  if (reply && reply->body.is_object())
    reply->headers.add("Location",
                       "/api/sessions/" + std::string(reply->body.at("session_id").get_string()));
  co_return reply;
}

// label=name:value may come several times.
Result<SessionFilter> filter_from(const Call& call) {
  SessionFilter filter;
  filter.limit = TRY(call.number("limit", 100, 1, 1000));
  for (auto& [name, value] : parse_query(call.head().query)) {
    if (name == "cursor") filter.cursor = value;
    if (name == "environment") filter.environment = value;
    if (name == "provider") filter.provider = value;
    if (name == "state") filter.states.push_back(value);
    if (name == "label") {
      std::size_t colon = value.find(':');
      if (colon == std::string::npos)
        return fail(Errc::invalid, "a label is asked for as label=name:value");
      filter.labels[value.substr(0, colon)] = value.substr(colon + 1);
    }
  }
  if (filter.states.empty()) filter.states = {"creating", "ready", "paused", "stopped"};
  return filter;
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  SessionFilter filter = CO_TRY(filter_from(*call));
  auto listing = parts.sessions.list(call->caller, std::move(filter));
  SessionPage page = CO_TRY(co_await std::move(listing));
  json::array sessions;
  for (const SessionRecord& record : page.sessions) sessions.push_back(describe(record));
  json::object body{{"sessions", std::move(sessions)}};
  body["next_cursor"] = page.cursor.empty() ? json::value(nullptr) : json::value(page.cursor);
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> get(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find_record(call->caller, call->parts[0]);
  SessionRecord record = CO_TRY(co_await std::move(finding));
  co_return Reply{200, describe(record), false, {}};
}

asio::awaitable<Result<std::shared_ptr<Session>>> find(ApiParts parts, CallPtr call,
                                                       Access access) {
  return parts.sessions.find(call->caller, call->parts[0], access);
}

asio::awaitable<Result<Reply>> patch(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  Sessions::Patch change;
  if (const json::value* labels = call->body.if_contains("labels")) {
    change.labels.emplace();
    for (const auto& [name, value] : labels->get_object())
      (*change.labels)[std::string(name)] = std::string(value.get_string());
  }
  auto seconds = [&](const char* name) -> std::optional<std::chrono::seconds> {
    const json::value* value = call->body.if_contains(name);
    if (!value) return std::nullopt;
    return std::chrono::seconds(value->to_number<std::int64_t>());
  };
  change.ttl = seconds("ttl_s");
  change.idle = seconds("idle_s");
  if (const json::value* flag = call->body.if_contains("keep_artifacts"))
    change.keep_artifacts = flag->get_bool();
  auto patching = parts.sessions.patch(call->caller, session, std::move(change));
  CO_TRY(co_await std::move(patching));
  co_return Reply{200, session->describe(), false, {}};
}

asio::awaitable<Result<Reply>> remove(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  std::optional<bool> keep = CO_TRY(call->flag("keep_artifacts"));
  auto removing = parts.sessions.remove(call->caller, std::move(session), keep);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> pause(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto pausing = parts.sessions.pause(call->caller, session);
  CO_TRY(co_await std::move(pausing));
  co_return Reply{200, session->describe(), false, {}};
}

asio::awaitable<Result<Reply>> resume(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto resuming = parts.sessions.resume(call->caller, session);
  CO_TRY(co_await std::move(resuming));
  co_return Reply{200, session->describe(), false, {}};
}

asio::awaitable<Result<Reply>> usage(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto sandbox = CO_TRY(session->sandbox(Session::Want::alive));
  auto asking = sandbox->usage();
  Usage now = CO_TRY(co_await std::move(asking));
  json::object body{{"at", iso_time(now_ms())},
                    {"cpu_ms", static_cast<double>(now.cpu.count()) / 1000},
                    {"memory_bytes", now.memory_bytes},
                    {"memory_peak_bytes", now.memory_peak_bytes},
                    {"pids", now.pids},
                    {"io_read_bytes", now.io_read_bytes},
                    {"io_write_bytes", now.io_write_bytes},
                    {"disk_bytes", now.disk_bytes},
                    {"disk_limit_bytes", now.disk_limit_bytes},
                    {"inodes", now.inodes},
                    {"oom_kills", now.oom_kills}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> usage_history(ApiParts parts, CallPtr call) {
  std::int64_t from = CO_TRY(call->number("from_ms", 0, 0, std::int64_t{1} << 53));
  std::int64_t limit = CO_TRY(call->number("limit", 100, 1, 1000));
  auto asking = parts.sessions.usage_history(call->caller, call->parts[0], from, limit);
  std::vector<UsageRecord> records = CO_TRY(co_await std::move(asking));
  json::array samples;
  for (const UsageRecord& sample : records)
    samples.push_back({{"at", iso_time(sample.at_ms)},
                       {"at_ms", sample.at_ms},
                       {"cpu_ms", static_cast<double>(sample.cpu_us) / 1000},
                       {"memory_bytes", sample.memory_bytes},
                       {"memory_peak_bytes", sample.memory_peak},
                       {"pids", sample.pids},
                       {"disk_bytes", sample.disk_bytes}});
  co_return Reply{200, json::object{{"samples", std::move(samples)}}, false, {}};
}

asio::awaitable<Result<Reply>> isolation(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto sandbox = CO_TRY(session->sandbox(Session::Want::alive));
  co_return Reply{200, json::object{{"isolation", json_of(sandbox->isolation())}}, false, {}};
}

json::object network_of(const Session& session) {
  json::object body = json_of(session.request().network);
  if (const SessionEgress* egress = session.egress()) {
    EgressCounts counts = egress->counts();
    body["attempts"] = counts.attempts;
    body["denied"] = counts.denied;
    body["bytes_up"] = counts.bytes_up;
    body["bytes_down"] = counts.bytes_down;
    body["connections"] = counts.connections;
  }
  return body;
}

asio::awaitable<Result<Reply>> get_network(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  co_return Reply{200, network_of(*session), false, {}};
}

asio::awaitable<Result<Reply>> set_network(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  NetworkRequest network = CO_TRY(network_request_from(call->body));
  auto setting = parts.sessions.set_network(call->caller, session, std::move(network));
  CO_TRY(co_await std::move(setting));
  co_return Reply{200, network_of(*session), false, {}};
}

asio::awaitable<Result<Reply>> share(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  std::string key(call->body.at("key_id").get_string());
  std::string access(call->body.at("access").get_string());
  if (!parts.keys.knows(key)) co_return fail(Errc::not_found, "there is no such key");
  auto sharing = parts.sessions.share(call->caller, session, std::move(key), std::move(access));
  CO_TRY(co_await std::move(sharing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> unshare(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto sharing = parts.sessions.share(call->caller, session, call->parts[1], std::nullopt);
  CO_TRY(co_await std::move(sharing));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> session_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "sessions";
  std::vector<Route> routes;
  Route creation{"POST",
                 "/api/sessions",
                 "createSession",
                 tag,
                 "Make a session",
                 with(create),
                 {{201, "The session, ready to be used", "Session"}},
                 "SessionCreate"};
  creation.body_optional = true;
  routes.push_back(std::move(creation));
  Route listing{"GET",
                "/api/sessions",
                "listSessions",
                tag,
                "The newest first, in pages",
                with(list),
                {{200, "A page", "SessionList"}}};
  listing.parameters = {{"state", "Only these; gone ones must be asked for"},
                        {"label", "name:value; may come several times"},
                        {"environment", "Only of this environment"},
                        {"provider", "Only of this provider"},
                        {"limit", "At most so many, 1 to 1000", "integer"},
                        {"cursor", "next_cursor of the page before"}};
  routes.push_back(std::move(listing));
  routes.push_back({"GET",
                    "/api/sessions/{id}",
                    "getSession",
                    tag,
                    "One session",
                    with(get),
                    {{200, "The session", "Session"}}});
  routes.push_back({"PATCH",
                    "/api/sessions/{id}",
                    "changeSession",
                    tag,
                    "Change labels, lifetime, or whether artifacts are kept",
                    with(patch),
                    {{200, "The session", "Session"}},
                    "SessionPatch"});
  Route removal{"DELETE",
                "/api/sessions/{id}",
                "deleteSession",
                tag,
                "End a session",
                with(remove),
                {{204, "No process of it lives"}}};
  removal.parameters = {
      {"keep_artifacts", "Whether what its cells made stays as long as its record", "boolean"},
      {"sandbox_id", "Accepted for other systems' clients, and not needed"}};
  routes.push_back(std::move(removal));
  routes.push_back({"POST",
                    "/api/sessions/{id}/pause",
                    "pauseSession",
                    tag,
                    "Stop all its processes, memory kept",
                    with(pause),
                    {{200, "The session", "Session"}}});
  routes.push_back({"POST",
                    "/api/sessions/{id}/resume",
                    "resumeSession",
                    tag,
                    "Let them go on; give a stopped session a computer again",
                    with(resume),
                    {{200, "The session", "Session"}}});
  routes.push_back({"GET",
                    "/api/sessions/{id}/usage",
                    "getUsage",
                    tag,
                    "What it uses now",
                    with(usage),
                    {{200, "Its use", "Usage"}}});
  Route history{"GET",
                "/api/sessions/{id}/usage/history",
                "getUsageHistory",
                tag,
                "What it used, the oldest first",
                with(usage_history),
                {{200, "Samples", "UsageHistory"}}};
  history.parameters = {
      {"from_ms", "Only from this moment on, in milliseconds since 1970", "integer"},
      {"limit", "At most so many, 1 to 1000", "integer"}};
  routes.push_back(std::move(history));
  routes.push_back({"GET",
                    "/api/sessions/{id}/isolation",
                    "getIsolation",
                    tag,
                    "Which guarantees hold for it",
                    with(isolation),
                    {{200, "Facts", "IsolationReport"}}});
  routes.push_back({"GET",
                    "/api/sessions/{id}/network",
                    "getNetwork",
                    tag,
                    "Which hosts its programs may reach, and what went through",
                    with(get_network),
                    {{200, "Its network, without credentials", "NetworkState"}}});
  routes.push_back({"PUT",
                    "/api/sessions/{id}/network",
                    "setNetwork",
                    tag,
                    "Replace the list; what it no longer allows is cut at once",
                    with(set_network),
                    {{200, "Its network, without credentials", "NetworkState"}},
                    "Network"});
  routes.push_back({"POST",
                    "/api/sessions/{id}/shares",
                    "shareSession",
                    tag,
                    "Let another key use it",
                    with(share),
                    {{204, "It may"}},
                    "Share"});
  routes.push_back({"DELETE",
                    "/api/sessions/{id}/shares/{key}",
                    "unshareSession",
                    tag,
                    "No longer let it",
                    with(unshare),
                    {{204, "It may not"}}});
  return routes;
}

}  // namespace asr
