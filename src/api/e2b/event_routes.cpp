// What happened to sandboxes, who is told of it, and the one team there is: the key's own.
#include <boost/json/parse.hpp>

#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "base/clock.hpp"
#include "session/webhooks.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostLooked = 20'000;  // events of one request, theirs and others

struct Kind {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Kind kKinds[] = {{"session.ready", "sandbox.lifecycle.created"},
                           {"session.paused", "sandbox.lifecycle.paused"},
                           {"session.changed", "sandbox.lifecycle.updated"},
                           {"session.network", "sandbox.lifecycle.updated"},
                           {"session.gone", "sandbox.lifecycle.killed"},
                           {"session.stopped", "sandbox.lifecycle.paused"},
                           {"session.checkpoint", "sandbox.lifecycle.checkpointed"},
                           {"session.snapshot", "sandbox.lifecycle.checkpointed"}};

json::value data_of(const EventRecord& event) {
  boost::system::error_code ec;
  json::value data = json::parse(event.data, ec);
  return ec ? json::value(json::object()) : std::move(data);
}

std::optional<std::string> type_of(const EventRecord& event, const json::value& data) {
  for (const Kind& kind : kKinds) {
    if (event.type != kind.ours) continue;
    // A session is ready when it was made, and whenever it goes on.
    bool made = event.type != "session.ready" ||
                (data.is_object() && data.get_object().contains("environment"));
    return std::string(made ? kind.theirs : "sandbox.lifecycle.resumed");
  }
  return std::nullopt;
}

json::object json_of(const EventRecord& event, std::string type, json::value data) {
  return {{"version", "v2"},
          {"id", std::to_string(event.id)},
          {"type", std::move(type)},
          {"eventData", std::move(data)},
          {"sandboxId", event.session},
          {"sandboxTemplateId", ""},
          {"sandboxBuildId", ""},
          {"sandboxExecutionId", event.session},
          {"sandboxTeamId", event.owner},
          {"timestamp", iso_time(event.at_ms)}};
}

asio::awaitable<Result<Reply>> events_of(E2bParts parts, CallPtr call,
                                         std::optional<std::string> session) {
  auto offset = static_cast<std::size_t>(CO_TRY(call->number("offset", 0, 0, 100'000)));
  auto limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 10, 1, 100)));
  bool oldest_first = CO_TRY(call->flag("orderAsc")).value_or(false);
  EventFilter filter;
  filter.owner = call->caller.id;
  filter.session = std::move(session);
  filter.limit = 1000;
  json::array all;
  for (std::size_t looked = 0; looked < kMostLooked;) {
    auto look = [filter](Database& database) { return list_events(database, filter); };
    std::vector<EventRecord> page = CO_TRY(co_await parts.api.store.read(std::move(look)));
    for (const EventRecord& event : page) {
      json::value data = data_of(event);
      if (auto type = type_of(event, data))
        all.push_back(json_of(event, std::move(*type), std::move(data)));
    }
    looked += page.size();
    if (page.size() < 1000) break;
    filter.after = page.back().id;
  }
  if (!oldest_first) std::reverse(all.begin(), all.end());
  json::array chosen;
  for (std::size_t i = offset; i < all.size() && chosen.size() < limit; ++i)
    chosen.push_back(std::move(all[i]));
  co_return Reply{200, std::move(chosen), false, {}};
}

asio::awaitable<Result<Reply>> events(E2bParts parts, CallPtr call) {
  return events_of(std::move(parts), std::move(call), std::nullopt);
}
asio::awaitable<Result<Reply>> events_of_one(E2bParts parts, CallPtr call) {
  std::string id = e2b_sandbox_id(call->parts[0]);
  return events_of(std::move(parts), std::move(call), std::move(id));
}

json::object json_of(const WebhookRecord& record) {
  boost::system::error_code ec;
  json::value types = json::parse(record.events, ec);
  json::array theirs;
  if (!ec && types.is_array())
    for (const json::value& type : types.get_array())
      for (const Kind& kind : kKinds)
        if (type.is_string() && type.get_string() == kind.ours) theirs.emplace_back(kind.theirs);
  return {{"id", record.id},
          {"name", record.id},
          {"teamId", record.owner},
          {"url", record.url},
          {"enabled", record.active},
          {"events", std::move(theirs)},
          {"createdAt", iso_time(record.created_ms)}};
}

asio::awaitable<Result<Reply>> make_webhook(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  std::string url = CO_TRY(fields.text("url"));
  if (fields.has("signatureSecret"))
    co_return fail(Errc::unsupported, "signatureSecret: this server makes the secret itself",
                   "leave it out; the answer has it once, and X-Agent-Sandbox-Signature is made "
                   "with it");
  if (!CO_TRY(fields.flag("enabled")).value_or(true))
    co_return fail(Errc::unsupported, "enabled: a webhook is told from the moment it is made",
                   "make it when it is wanted");
  std::vector<std::string> types;
  for (const std::string& wanted : CO_TRY(fields.list("events", 50))) {
    bool known = wanted == "sandbox.lifecycle.resumed";
    if (known) types.emplace_back("session.ready");
    for (const Kind& kind : kKinds)
      if (kind.theirs == wanted) {
        types.emplace_back(kind.ours);
        known = true;
      }
    if (!known) co_return fail(Errc::invalid, "events: there is no " + wanted.substr(0, 100));
  }
  auto making = parts.api.webhooks->make(call->caller, std::move(url), std::move(types));
  Webhooks::Made made = CO_TRY(co_await std::move(making));
  json::object body = json_of(made.record);
  body["signatureSecret"] = made.secret;
  co_return Reply{201, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> list_webhooks(E2bParts parts, CallPtr call) {
  auto listing = parts.api.webhooks->list(call->caller);
  std::vector<WebhookRecord> records = CO_TRY(co_await std::move(listing));
  json::array all;
  for (const WebhookRecord& record : records) all.push_back(json_of(record));
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<Reply>> get_webhook(E2bParts parts, CallPtr call) {
  auto listing = parts.api.webhooks->list(call->caller);
  std::vector<WebhookRecord> records = CO_TRY(co_await std::move(listing));
  for (const WebhookRecord& record : records)
    if (record.id == call->parts[0]) co_return Reply{200, json_of(record), false, {}};
  co_return fail(Errc::not_found, "there is no such webhook");
}

asio::awaitable<Result<Reply>> remove_webhook(E2bParts parts, CallPtr call) {
  auto removing = parts.api.webhooks->remove(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> teams(E2bParts, CallPtr call) {
  json::array all;
  all.push_back({{"teamID", call->caller.id},
                 {"name", call->caller.id},
                 {"apiKey", ""},  // Nobody is told a key again.
                 {"isDefault", true}});
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<Reply>> team_metrics(E2bParts parts, CallPtr call) {
  if (call->parts[0] != call->caller.id) co_return fail(Errc::not_found, "there is no such team");
  SessionFilter running;
  running.states = {"creating", "ready"};
  auto counting = parts.sessions().count(call->caller, std::move(running));
  std::int64_t count = CO_TRY(co_await std::move(counting));
  json::array all;
  all.push_back({{"timestamp", iso_time(now_ms())},
                 {"timestampUnix", now_ms() / 1000},
                 {"concurrentSandboxes", count},
                 {"sandboxStartRate", 0.0}});
  co_return Reply{200, std::move(all), false, {}};
}

}  // namespace

std::vector<Route> e2b_event_routes(const E2bParts& parts) {
  const std::string hooks = "/events/webhooks";
  const std::string hook = hooks + "/{webhook}";
  return {e2b_route(parts, "GET", "/events/sandboxes", "e2bEvents", events),
          e2b_route(parts, "GET", "/events/sandboxes/{id}", "e2bEventsOfOne", events_of_one),
          e2b_route(parts, "POST", hooks, "e2bMakeWebhook", make_webhook, E2bBody::required),
          e2b_route(parts, "GET", hooks, "e2bListWebhooks", list_webhooks),
          e2b_route(parts, "GET", hook, "e2bGetWebhook", get_webhook),
          e2b_route(parts, "DELETE", hook, "e2bRemoveWebhook", remove_webhook),
          e2b_route(parts, "GET", "/teams", "e2bTeams", teams),
          e2b_route(parts, "GET", "/teams/{team}/metrics", "e2bTeamMetrics", team_metrics)};
}

}  // namespace asr
