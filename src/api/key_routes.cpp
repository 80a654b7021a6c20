// Keys: make, list, revoke. The key itself is told once, when it is made.
#include "api/api.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

json::object json_of(const KeyRecord& record) {
  auto time = [](std::int64_t ms) {
    return ms == 0 ? json::value(nullptr) : json::value(iso_time(ms));
  };
  return {{"key_id", record.id},
          {"name", record.name},
          {"role", record.role},
          {"prefix", record.prefix},
          {"created_at", iso_time(record.created_ms)},
          {"expires_at", time(record.expires_ms)},
          {"revoked_at", time(record.revoked_ms.value_or(0))}};
}

asio::awaitable<Result<Reply>> make(ApiParts parts, CallPtr call) {
  NewKey wanted;
  wanted.name = std::string(call->body.at("name").get_string());
  if (const json::value* role = call->body.if_contains("role"))
    wanted.role = parse_role(role->get_string()).value_or(Role::user);
  if (const json::value* ttl = call->body.if_contains("ttl_s"))
    wanted.expires_ms = now_ms() + ttl->to_number<std::int64_t>() * 1000;
  if (const json::value* most = call->body.if_contains("max_sessions"))
    wanted.most_sessions = most->to_number<std::uint32_t>();
  if (const json::value* form = call->body.if_contains("form"))
    wanted.form = form->get_string() == "e2b" ? NewKey::Form::e2b : NewKey::Form::own;
  auto making = parts.keys.make(call->caller, std::move(wanted));
  KeyRing::Made made = CO_TRY(co_await std::move(making));
  json::object body = json_of(made.record);
  body["key"] = made.key;
  co_return Reply{201, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> list(ApiParts parts) {
  json::array keys;
  for (const KeyRecord& record : parts.keys.list()) keys.push_back(json_of(record));
  co_return Reply{200, json::object{{"keys", std::move(keys)}}, false, {}};
}

asio::awaitable<Result<Reply>> revoke(ApiParts parts, CallPtr call) {
  auto revoking = parts.keys.revoke(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(revoking));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> whoami(CallPtr call) {
  json::object body{{"key_id", call->caller.id}, {"role", to_string(call->caller.role)}};
  co_return Reply{200, std::move(body), false, {}};
}

}  // namespace

std::vector<Route> key_routes(const ApiParts& parts) {
  std::vector<Route> routes;
  routes.push_back({"POST",
                    "/api/keys",
                    "createKey",
                    "keys",
                    "Make a key",
                    [parts](CallPtr call) { return make(parts, std::move(call)); },
                    {{201, "The key, told this once", "NewKey"}},
                    "KeyCreate"});
  routes.push_back({"GET",
                    "/api/keys",
                    "listKeys",
                    "keys",
                    "All keys, without their secrets",
                    [parts](CallPtr) { return list(parts); },
                    {{200, "The keys", "KeyList"}}});
  routes.push_back({"DELETE",
                    "/api/keys/{key}",
                    "revokeKey",
                    "keys",
                    "Revoke a key for good",
                    [parts](CallPtr call) { return revoke(parts, std::move(call)); },
                    {{204, "It no longer opens anything"}}});
  for (Route& route : routes) route.least = Role::admin;
  routes.push_back({"GET",
                    "/api/me",
                    "whoAmI",
                    "keys",
                    "Which key this is, and what it may do",
                    whoami,
                    {{200, "The caller", "Me"}}});
  return routes;
}

}  // namespace asr
