// Secrets: named, sealed, never told again; rules of a sandbox's network may use them.
#include <boost/json/parse.hpp>

#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

json::object json_of(const SecretRecord& record) {
  boost::system::error_code ec;
  json::value metadata = json::parse(record.metadata, ec);
  return {{"secretID", record.id},
          {"name", record.name},
          {"currentVersion", record.version},
          {"metadata", ec ? json::value(json::object()) : std::move(metadata)},
          {"createdAt", iso_time(record.created_ms)},
          {"updatedAt", iso_time(record.updated_ms)}};
}

Result<std::optional<std::string>> metadata_of(const json::object& body) {
  E2bFields fields(body);
  if (!fields.has("metadata")) return std::optional<std::string>();
  json::object metadata;
  for (auto& [name, value] : TRY(fields.texts("metadata", 64))) metadata[name] = value;
  return std::optional<std::string>(to_text(metadata));
}

asio::awaitable<Result<Reply>> create(E2bParts parts, CallPtr call) {
  E2bFields fields(call->body);
  std::string name = CO_TRY(fields.text("name"));
  std::string value = CO_TRY(fields.text("value"));
  auto metadata = CO_TRY(metadata_of(call->body));
  auto making = parts.sessions().secrets().create(call->caller, std::move(name), std::move(value),
                                                  metadata.value_or("{}"));
  SecretRecord record = CO_TRY(co_await std::move(making));
  co_return Reply{201, json_of(record), false, {}};
}

asio::awaitable<Result<Reply>> update(E2bParts parts, CallPtr call) {
  std::string value = CO_TRY(E2bFields(call->body).text("value"));
  auto metadata = CO_TRY(metadata_of(call->body));
  auto changing = parts.sessions().secrets().update(call->caller, call->parts[0], std::move(value),
                                                    std::move(metadata));
  SecretRecord record = CO_TRY(co_await std::move(changing));
  auto renewing = parts.sessions().renew_secrets(call->caller.id);
  co_await std::move(renewing);
  co_return Reply{200, json_of(record), false, {}};
}

asio::awaitable<Result<Reply>> get(E2bParts parts, CallPtr call) {
  auto finding = parts.sessions().secrets().find(call->caller, call->parts[0]);
  SecretRecord record = CO_TRY(co_await std::move(finding));
  co_return Reply{200, json_of(record), false, {}};
}

asio::awaitable<Result<Reply>> list(E2bParts parts, CallPtr call) {
  auto listing = parts.sessions().secrets().list(call->caller);
  std::vector<SecretRecord> records = CO_TRY(co_await std::move(listing));
  auto limit = static_cast<std::size_t>(CO_TRY(call->number("limit", 100, 1, 1000)));
  std::string token = call->head().parameter("nextToken").value_or("");
  Reply reply{200, json::array(), false, {}};
  json::array& all = reply.body.get_array();
  for (const SecretRecord& record : records) {
    if (!token.empty() && record.name <= token) continue;
    if (all.size() == limit) {
      reply.headers.add("X-Next-Token", std::string(all.back().at("name").get_string()));
      break;
    }
    all.push_back(json_of(record));
  }
  co_return reply;
}

asio::awaitable<Result<Reply>> remove(E2bParts parts, CallPtr call) {
  auto removing = parts.sessions().secrets().remove(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(removing));
  auto renewing = parts.sessions().renew_secrets(call->caller.id);
  co_await std::move(renewing);
  co_return Reply::none();
}

}  // namespace

std::vector<Route> e2b_secret_routes(const E2bParts& parts) {
  const std::string all = "/secrets";
  const std::string one = all + "/{secret}";
  return {e2b_route(parts, "POST", all, "e2bCreateSecret", create, E2bBody::required),
          e2b_route(parts, "GET", all, "e2bListSecrets", list),
          e2b_route(parts, "POST", one, "e2bUpdateSecret", update, E2bBody::required),
          e2b_route(parts, "GET", one, "e2bGetSecret", get),
          e2b_route(parts, "DELETE", one, "e2bRemoveSecret", remove)};
}

}  // namespace asr
