// Webhooks: where a caller wants to be told of its events.
#include <boost/json/parse.hpp>

#include "api/api.hpp"
#include "base/clock.hpp"
#include "session/webhooks.hpp"

namespace asr {

namespace {

json::object json_of(const WebhookRecord& record) {
  boost::system::error_code ec;
  return {{"webhook_id", record.id},
          {"url", record.url},
          {"events", json::parse(record.events, ec)},
          {"created_at", iso_time(record.created_ms)},
          {"failures", record.failures},
          {"last_error", record.last_error}};
}

asio::awaitable<Result<Reply>> make(Webhooks* webhooks, CallPtr call) {
  std::vector<std::string> types;
  if (const json::value* list = call->body.if_contains("events"))
    for (const json::value& type : list->get_array()) types.emplace_back(type.get_string());
  auto making = webhooks->make(call->caller, std::string(call->body.at("url").get_string()),
                               std::move(types));
  Webhooks::Made made = CO_TRY(co_await std::move(making));
  json::object body = json_of(made.record);
  body["secret"] = made.secret;
  co_return Reply{201, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> list(Webhooks* webhooks, CallPtr call) {
  auto listing = webhooks->list(call->caller);
  std::vector<WebhookRecord> records = CO_TRY(co_await std::move(listing));
  json::array all;
  for (const WebhookRecord& record : records) all.push_back(json_of(record));
  co_return Reply{200, json::object{{"webhooks", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> remove(Webhooks* webhooks, CallPtr call) {
  auto removing = webhooks->remove(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> webhook_routes(Webhooks* webhooks) {
  const std::string tag = "events";
  std::vector<Route> routes;
  routes.push_back({"POST",
                    "/api/webhooks",
                    "createWebhook",
                    tag,
                    "Be told of events by HTTP; the secret that signs them is told once",
                    [webhooks](CallPtr call) { return make(webhooks, std::move(call)); },
                    {{201, "The webhook", "NewWebhook"}},
                    "WebhookCreate"});
  routes.back().least = Role::user;
  routes.push_back({"GET",
                    "/api/webhooks",
                    "listWebhooks",
                    tag,
                    "Your webhooks, and how they do",
                    [webhooks](CallPtr call) { return list(webhooks, std::move(call)); },
                    {{200, "The webhooks", "WebhookList"}}});
  routes.push_back({"DELETE",
                    "/api/webhooks/{webhook}",
                    "deleteWebhook",
                    tag,
                    "No longer be told",
                    [webhooks](CallPtr call) { return remove(webhooks, std::move(call)); },
                    {{204, "It is gone"}}});
  routes.back().least = Role::user;
  return routes;
}

}  // namespace asr
