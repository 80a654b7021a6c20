// Volumes: made, listed and removed. Who has a volume's token may reach its files.
#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/volume_token.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kSize = 10ULL
                                << 30;  // E2B's clients do not say; only what is written counts

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 63 &&
         name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
             std::string::npos;
}

json::object json_of(const E2bParts& parts, const VolumeRecord& record) {
  return {{"volumeID", record.id},
          {"name", record.name},
          {"token", e2b_volume_token(parts, record.id)},
          {"domain", nullptr}};
}

asio::awaitable<Result<VolumeRecord>> find(E2bParts parts, CallPtr call) {
  auto finding = parts.sessions().volumes().find_by_id(call->parts[0]);
  auto record = co_await std::move(finding);
  if (!record || record->owner != call->caller.id)
    co_return fail(Errc::not_found, "volume \"" + call->parts[0].substr(0, 64) + "\" not found");
  co_return record;
}

asio::awaitable<Result<Reply>> create(E2bParts parts, CallPtr call) {
  std::string name = CO_TRY(E2bFields(call->body).text("name"));
  if (!is_name(name))
    co_return fail(Errc::invalid, "a volume's name has up to 63 letters, digits, - and _");
  std::uint64_t size = std::min(kSize, parts.sessions().settings().volumes.most_bytes);
  auto making = parts.sessions().volumes().create(call->caller, name, size);
  auto record = co_await std::move(making);
  if (!record && record.error().code == Errc::conflict)
    co_return fail(Errc::invalid, "volume \"" + name + "\" already exists");
  if (!record) co_return fail(record.error());
  co_return Reply{201, json_of(parts, *record), false, {}};
}

asio::awaitable<Result<Reply>> list(E2bParts parts, CallPtr call) {
  auto listing = parts.sessions().volumes().list(call->caller);
  std::vector<VolumeRecord> records = CO_TRY(co_await std::move(listing));
  json::array all;
  for (const VolumeRecord& record : records)
    all.push_back({{"volumeID", record.id}, {"name", record.name}});
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<Reply>> get(E2bParts parts, CallPtr call) {
  auto finding = find(parts, call);
  VolumeRecord record = CO_TRY(co_await std::move(finding));
  co_return Reply{200, json_of(parts, record), false, {}};
}

asio::awaitable<Result<Reply>> remove(E2bParts parts, CallPtr call) {
  auto finding = find(parts, call);
  VolumeRecord record = CO_TRY(co_await std::move(finding));
  auto removing = parts.sessions().volumes().remove(call->caller, record.name);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

}  // namespace

std::string e2b_volume_token(const E2bParts& parts, const std::string& id) {
  return to_hex(parts.api.store.secrets().mac("e2b volume " + id));
}

std::vector<Route> e2b_volume_routes(const E2bParts& parts) {
  const std::string all = "/volumes";
  const std::string one = all + "/{volume}";
  return {e2b_route(parts, "POST", all, "e2bCreateVolume", create, E2bBody::required),
          e2b_route(parts, "GET", all, "e2bListVolumes", list, E2bBody::none, Role::viewer),
          e2b_route(parts, "GET", one, "e2bGetVolume", get),
          e2b_route(parts, "DELETE", one, "e2bRemoveVolume", remove)};
}

}  // namespace asr
