// The server itself: whether it lives, what it counts, what it offers.
#include <boost/json/serialize.hpp>

#include "api/api.hpp"
#include "base/clock.hpp"
#include "base/version.hpp"
#include "store/audit_records.hpp"

extern "C" {
extern const char asr_api_docs_begin[];
extern const char asr_api_docs_end[];
}

namespace asr {

namespace {

asio::awaitable<Result<Reply>> health(CallPtr) {
  json::object body{{"status", "ok"}, {"version", std::string(kVersion)}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> ready(Api* api) {
  if (!api->is_ready()) {
    json::object body{{"status", "starting or stopping"}};
    co_return Reply{503, std::move(body), false, {}};
  }
  json::object body{{"status", "ok"}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> text(CallPtr call, std::string media, std::string body) {
  Response response;
  response.headers.add("Content-Type", std::move(media));
  response.headers.add("X-Content-Type-Options", "nosniff");
  response.headers.add("Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                       "connect-src 'self'; frame-ancestors 'none'");
  response.body = std::move(body);
  auto responding = call->exchange->respond(std::move(response));
  CO_TRY(co_await std::move(responding));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> providers(ApiParts parts) {
  json::array list;
  for (const auto& [name, provider] : parts.sessions.providers()) {
    json::array pools;
    for (const PoolState& pool : provider->pools())
      pools.push_back(json::object{{"ready", pool.ready},
                                   {"wanted", pool.wanted},
                                   {"served_warm", pool.served_warm},
                                   {"served_cold", pool.served_cold}});
    json::array abilities;
    for (const AbilityName& each : all_abilities()) {
      json::object ability{{"name", each.name}, {"can", provider->abilities().can(each.ability)}};
      std::string why = provider->abilities().why_not(each.ability);
      if (!why.empty()) ability["why_not"] = std::move(why);
      abilities.push_back(std::move(ability));
    }
    std::string trouble = provider->trouble();
    json::object entry{{"name", name},
                       {"state", trouble.empty() ? "ok" : "trouble"},
                       {"pools", std::move(pools)},
                       {"abilities", std::move(abilities)}};
    if (!trouble.empty()) entry["trouble"] = std::move(trouble);
    if (auto life = provider->longest_life(); life.count() > 0)
      entry["longest_life_s"] = life.count();
    list.push_back(std::move(entry));
  }
  co_return Reply{200, json::object{{"providers", std::move(list)}}, false, {}};
}

asio::awaitable<Result<Reply>> audit(ApiParts parts, CallPtr call) {
  std::int64_t after = CO_TRY(call->number("after", 0, 0, INT64_MAX));
  std::int64_t limit = CO_TRY(call->number("limit", 100, 1, 1000));
  auto look = [after, limit](Database& database) { return list_audit(database, after, limit); };
  auto records = CO_TRY(co_await parts.store.read(std::move(look)));
  json::array list;
  for (const AuditRecord& record : records)
    list.push_back(json::object{{"seq", record.seq},
                                {"at", iso_time(record.entry.at_ms)},
                                {"actor", record.entry.actor},
                                {"action", record.entry.action},
                                {"target", record.entry.target},
                                {"trace_id", record.entry.trace_id}});
  co_return Reply{200, json::object{{"entries", std::move(list)}}, false, {}};
}

asio::awaitable<Result<Reply>> verify(ApiParts parts) {
  auto check = [&secrets = parts.store.secrets()](Database& database) {
    return verify_audit(database, secrets);
  };
  AuditVerdict found = CO_TRY(co_await parts.store.read(std::move(check)));
  json::object body{{"ok", found.ok},
                    {"entries", found.count},
                    {"first_bad", found.first_bad_seq},
                    {"why", found.why}};
  co_return Reply{200, std::move(body), false, {}};
}

}  // namespace

std::vector<Route> system_routes(const ApiParts& parts, Api* api) {
  std::string page(asr_api_docs_begin,
                   static_cast<std::size_t>(asr_api_docs_end - asr_api_docs_begin));
  std::vector<Route> routes;
  routes.push_back({"GET",
                    "/health",
                    "health",
                    "server",
                    "Whether the process lives",
                    health,
                    {{200, "It does", "Health"}}});
  routes.push_back({"GET",
                    "/ready",
                    "ready",
                    "server",
                    "Whether it takes requests",
                    [api](CallPtr) { return ready(api); },
                    {{200, "It does", "Health"}, {503, "Not yet, or no longer", "Health"}}});
  routes.push_back({"GET",
                    "/metrics",
                    "metrics",
                    "server",
                    "What it counts, for Prometheus",
                    [api](CallPtr call) {
                      return text(std::move(call), "text/plain; version=0.0.4",
                                  api->metrics().text());
                    },
                    {{200, "Counters and gauges", "", "text/plain"}}});
  routes.push_back({"GET",
                    "/openapi.json",
                    "openapi",
                    "server",
                    "This description",
                    [api](CallPtr) -> asio::awaitable<Result<Reply>> {
                      co_return Reply{200, api->document(), false, {}};
                    },
                    {{200, "An OpenAPI document", "Document"}}});
  routes.push_back(
      {"GET",
       "/docs",
       "docs",
       "server",
       "This description, to be read",
       [page](CallPtr call) { return text(std::move(call), "text/html; charset=utf-8", page); },
       {{200, "A page", "", "text/html"}}});
  for (Route& route : routes) route.needs = Needs::nothing;
  routes[2].needs = Needs::key;
  routes.push_back({"GET",
                    "/api/providers",
                    "listProviders",
                    "server",
                    "Where sessions can live, what each place can do, and the warm pools there",
                    [parts](CallPtr) { return providers(parts); },
                    {{200, "The providers", "ProviderList"}}});
  Route audit_route{"GET",
                    "/api/audit",
                    "listAudit",
                    "server",
                    "Who did what, the oldest first",
                    [parts](CallPtr call) { return audit(parts, std::move(call)); },
                    {{200, "Entries", "AuditList"}}};
  audit_route.least = Role::admin;
  audit_route.parameters = {{"after", "Entries after this number", "integer"},
                            {"limit", "At most so many", "integer"}};
  routes.push_back(std::move(audit_route));
  routes.push_back({"GET",
                    "/api/audit/verify",
                    "verifyAudit",
                    "server",
                    "Whether somebody tampered with it",
                    [parts](CallPtr) { return verify(parts); },
                    {{200, "What was found", "AuditVerdict"}}});
  routes.back().least = Role::admin;
  return routes;
}

}  // namespace asr
