// Volumes: make, list, look at, remove. By name: each belongs to one key.
#include "api/api.hpp"
#include "base/clock.hpp"
#include "base/units.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kUsualSize = 1ULL << 30;

json::object json_of(const VolumeRecord& record) {
  return {{"volume_id", record.id},
          {"name", record.name},
          {"size", record.size_limit},
          {"created_at", iso_time(record.created_ms)}};
}

asio::awaitable<Result<Reply>> make(ApiParts parts, CallPtr call) {
  std::uint64_t bytes = kUsualSize;
  if (const json::value* size = call->body.if_contains("size"))
    bytes = size->is_number() ? size->to_number<std::uint64_t>()
                              : CO_TRY(parse_bytes(size->get_string()));
  std::string name(call->body.at("name").get_string());
  auto making = parts.sessions.volumes().create(call->caller, std::move(name), bytes);
  VolumeRecord record = CO_TRY(co_await std::move(making));
  co_return Reply{201, json_of(record), false, {}};
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  auto listing = parts.sessions.volumes().list(call->caller);
  std::vector<VolumeRecord> records = CO_TRY(co_await std::move(listing));
  json::array volumes;
  for (const VolumeRecord& record : records) volumes.push_back(json_of(record));
  co_return Reply{200, json::object{{"volumes", std::move(volumes)}}, false, {}};
}

asio::awaitable<Result<Reply>> get(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.volumes().find(call->caller, call->parts[0]);
  Volumes::Details details = CO_TRY(co_await std::move(finding));
  json::object body = json_of(details.record);
  json::array uses;
  for (const VolumeUse& use : details.uses)
    uses.push_back({{"session_id", use.session}, {"path", use.path}, {"read_only", use.read_only}});
  body["used_by"] = std::move(uses);
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> remove(ApiParts parts, CallPtr call) {
  auto removing = parts.sessions.volumes().remove(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> volume_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "volumes";
  return {{"POST",
           "/api/volumes",
           "createVolume",
           tag,
           "Make a volume: files that sessions share and that outlive them",
           with(make),
           {{201, "The volume", "Volume"}},
           "VolumeCreate"},
          {"GET",
           "/api/volumes",
           "listVolumes",
           tag,
           "Yours, by name",
           with(list),
           {{200, "The volumes", "VolumeList"}}},
          {"GET",
           "/api/volumes/{volume}",
           "getVolume",
           tag,
           "One of them, and who uses it",
           with(get),
           {{200, "The volume", "Volume"}}},
          {"DELETE",
           "/api/volumes/{volume}",
           "deleteVolume",
           tag,
           "Remove it with all that is in it; not while a session has it",
           with(remove),
           {{204, "It is gone"}}}};
}

}  // namespace asr
