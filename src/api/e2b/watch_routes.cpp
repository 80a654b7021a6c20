// What sandboxes use and what was done in them: metrics and logs.
#include <boost/json/parse.hpp>
#include <cmath>

#include "api/e2b/control_plane.hpp"
#include "api/e2b/logs.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostSandboxes = 100;
constexpr std::int64_t kMostSamples = 1000;
constexpr std::int64_t kRecentMs = 10'000;

// The share of one processor between two moments, in percent of all it has.
json::object metric_of(const UsageRecord& sample, const UsageRecord& before, const Limits& limits) {
  double cpus = std::max(1.0, static_cast<double>(limits.milli_cpus) / 1000);
  auto wall_us = static_cast<double>(std::max<std::int64_t>(1, sample.at_ms - before.at_ms)) * 1000;
  auto used = static_cast<double>(std::max<std::int64_t>(0, sample.cpu_us - before.cpu_us));
  return {{"timestamp", iso_time(sample.at_ms)},
          {"timestampUnix", sample.at_ms / 1000},
          {"cpuCount", std::lround(cpus)},
          {"cpuUsedPct", 100 * used / wall_us},
          {"memUsed", sample.memory_bytes},
          {"memTotal", limits.memory_bytes},
          {"memCache", 0},
          {"diskUsed", sample.disk_bytes},
          {"diskTotal", limits.disk_bytes}};
}

asio::awaitable<std::optional<UsageRecord>> sample_now(std::shared_ptr<Session> session) {
  auto sandbox = session->sandbox();
  if (!sandbox) co_return std::nullopt;
  auto asking = (*sandbox)->usage();
  auto usage = co_await std::move(asking);
  if (!usage) co_return std::nullopt;
  UsageRecord record;
  record.at_ms = now_ms();
  record.cpu_us = usage->cpu.count();
  record.memory_bytes = static_cast<std::int64_t>(usage->memory_bytes);
  record.disk_bytes = static_cast<std::int64_t>(usage->disk_bytes);
  co_return record;
}

// What was written down, and what is now.
asio::awaitable<Result<json::array>> metrics_between(E2bParts parts, Caller caller,
                                                     std::shared_ptr<Session> session,
                                                     std::int64_t from_ms, std::int64_t to_ms) {
  auto asking = parts.sessions().usage_history(caller, session->id(), 0, kMostSamples);
  std::vector<UsageRecord> samples = CO_TRY(co_await std::move(asking));
  if (to_ms + kRecentMs >= now_ms()) {
    auto looking = sample_now(session);
    if (auto now = co_await std::move(looking)) samples.push_back(std::move(*now));
    to_ms = std::max(to_ms, now_ms());
  }
  json::array metrics;
  UsageRecord before;
  before.at_ms = session->record().created_ms;
  for (const UsageRecord& sample : samples) {
    if (sample.at_ms >= from_ms && sample.at_ms <= to_ms)
      metrics.push_back(metric_of(sample, before, session->request().spec.limits));
    before = sample;
  }
  co_return metrics;
}

// Seconds, or what the Python SDK of 2.7 sends: milliseconds.
Result<std::int64_t> moment(const Call& call, const char* name, std::int64_t standard_ms) {
  constexpr std::int64_t kNoSeconds = 100'000'000'000;  // as seconds, the year 5138
  std::int64_t given = TRY(call.number(name, standard_ms, 0, INT64_MAX / 1000));
  return given < kNoSeconds ? given * 1000 : given;
}

asio::awaitable<Result<Reply>> metrics(E2bParts parts, CallPtr call) {
  std::int64_t from_ms = CO_TRY(moment(*call, "start", 0));
  std::int64_t to_ms = CO_TRY(moment(*call, "end", now_ms() + 1000));
  auto finding = e2b_find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto asking = metrics_between(parts, call->caller, session, from_ms, to_ms);
  json::array all = CO_TRY(co_await std::move(asking));
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<Reply>> metrics_of_several(E2bParts parts, CallPtr call) {
  std::string ids = CO_TRY(call->required("sandbox_ids"));
  json::object all;
  std::size_t count = 0;
  for (std::size_t at = 0; at <= ids.size();) {
    std::size_t comma = std::min(ids.find(',', at), ids.size());
    std::string id = e2b_sandbox_id(std::string_view(ids).substr(at, comma - at));
    at = comma + 1;
    if (++count > kMostSandboxes)
      co_return fail(Errc::invalid, "sandbox_ids names more than 100 sandboxes");
    auto finding = parts.sessions().find(call->caller, id, Access::look);
    auto session = co_await std::move(finding);
    if (!session) continue;  // Those that are not there are not in the answer.
    auto asking = metrics_between(parts, call->caller, *session, 0, now_ms());
    json::array metrics = CO_TRY(co_await std::move(asking));
    if (!metrics.empty()) all[id] = std::move(metrics.back());
  }
  co_return Reply{200, json::object{{"sandboxes", std::move(all)}}, false, {}};
}

asio::awaitable<Result<std::vector<E2bLogEntry>>> logs_of(E2bParts parts, CallPtr call,
                                                          E2bLogWish wish) {
  std::string id = e2b_sandbox_id(call->parts[0]);
  auto finding = parts.sessions().find_history(call->caller, id);
  auto found = co_await std::move(finding);
  if (!found)
    co_return fail(found.error().code, found.error().code == Errc::not_found
                                           ? "sandbox \"" + id + "\" doesn't exist"
                                           : found.error().what);
  EventFilter filter;
  filter.session = id;
  if (call->caller.role < Role::oper) filter.owner = call->caller.id;
  filter.limit = 1000;
  auto look = [filter](Database& database) { return list_events(database, filter); };
  std::vector<EventRecord> events = CO_TRY(co_await parts.api.store.read(std::move(look)));
  co_return e2b_logs(found->folder, events, wish);
}

asio::awaitable<Result<Reply>> logs_first(E2bParts parts, CallPtr call) {
  E2bLogWish wish;
  wish.from_ms = CO_TRY(call->number("start", 0, 0, INT64_MAX));
  wish.limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 1000, 0, 1000)));
  auto reading = logs_of(parts, call, wish);
  std::vector<E2bLogEntry> entries = CO_TRY(co_await std::move(reading));
  json::array lines;
  json::array all;
  for (const E2bLogEntry& entry : entries) {
    lines.push_back({{"timestamp", iso_time(entry.at_ms)}, {"line", entry.message}});
    all.push_back(json_of(entry));
  }
  co_return Reply{
      200, json::object{{"logs", std::move(lines)}, {"logEntries", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> logs_second(E2bParts parts, CallPtr call) {
  E2bLogWish wish;
  auto direction = call->head().parameter("direction").value_or("forward");
  if (direction != "forward" && direction != "backward")
    co_return fail(Errc::invalid, "direction must be forward or backward");
  wish.backward = direction == "backward";
  wish.from_ms = CO_TRY(call->number("cursor", wish.backward ? INT64_MAX : 0, 0, INT64_MAX));
  wish.limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 1000, 0, 1000)));
  wish.level = call->head().parameter("level").value_or("debug");
  wish.search = call->head().parameter("search").value_or("");
  auto reading = logs_of(parts, call, wish);
  std::vector<E2bLogEntry> entries = CO_TRY(co_await std::move(reading));
  json::array all;
  for (const E2bLogEntry& entry : entries) all.push_back(json_of(entry));
  co_return Reply{200, json::object{{"logs", std::move(all)}}, false, {}};
}

}  // namespace

std::vector<Route> e2b_watch_routes(const E2bParts& parts) {
  std::vector<Route> routes;
  auto add = [&](const char* path, const char* name, E2bHandle handle) {
    routes.push_back(e2b_route(parts, "GET", path, name, handle, E2bBody::none, Role::viewer));
  };
  add("/sandboxes/metrics", "e2bMetricsOfSeveral", metrics_of_several);
  add("/sandboxes/{id}/metrics", "e2bMetrics", metrics);
  add("/sandboxes/{id}/logs", "e2bLogsV1", logs_first);
  add("/v2/sandboxes/{id}/logs", "e2bLogs", logs_second);
  return routes;
}

}  // namespace asr
