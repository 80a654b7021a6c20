#include "session/volumes.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/units.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr std::string_view kFolder = "volumes";
constexpr std::size_t kIdLength = 26;

Error unknown_volume(const std::string& name) {
  return Error(Errc::not_found, "there is no volume \"" + name + "\"",
               "GET /api/volumes lists yours; POST /api/volumes makes one");
}

// A sandbox that has ended lets go of its volumes a moment later.
asio::awaitable<Result<void>> remove_when_free(Provider* provider, std::string source) {
  constexpr std::chrono::milliseconds kLookAgain{20};
  constexpr std::chrono::seconds kWithin{2};
  asio::steady_timer pause(co_await asio::this_coro::executor);
  auto until = std::chrono::steady_clock::now() + kWithin;
  for (;;) {
    auto removing = provider->remove_storage(source);
    auto removed = co_await std::move(removing);
    bool in_use = !removed && removed.error().code == Errc::conflict;
    if (!in_use || std::chrono::steady_clock::now() >= until) co_return removed;
    pause.expires_after(kLookAgain);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

}  // namespace

std::string Volumes::source_of(std::string_view id) {
  return std::string(kFolder) + "/" + std::string(id);
}

asio::awaitable<Result<VolumeRecord>> Volumes::find_by_id(std::string id) {
  auto look = [id](Database& database) { return find_volume(database, id); };
  auto found = co_await store_.read(std::move(look));
  if (!found && found.error().code == Errc::not_found) co_return fail(unknown_volume(id));
  co_return found;
}

asio::awaitable<Result<VolumeRecord>> Volumes::create(Caller caller, std::string name,
                                                      std::uint64_t bytes) {
  if (caller.role == Role::viewer)
    co_return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  if (bytes > settings_.most_bytes)
    co_return fail(Errc::invalid,
                   "/size: a volume may have " + format_bytes(settings_.most_bytes) + " at most");
  auto look = [owner = caller.id](Database& database) { return list_volumes(database, owner); };
  std::vector<VolumeRecord> own = CO_TRY(co_await store_.read(std::move(look)));
  for (const VolumeRecord& other : own)
    if (other.name == name)
      co_return fail(Errc::conflict, "there is a volume \"" + name + "\" already");
  if (own.size() >= settings_.most_per_key)
    co_return fail(Errc::exhausted, "this key has as many volumes as it may", "remove some");

  VolumeRecord record;
  record.id = random_name(kIdLength);
  record.owner = caller.id;
  record.name = std::move(name);
  record.size_limit = static_cast<std::int64_t>(bytes);
  record.created_ms = now_ms();
  VolumeOptions options;
  options.bytes = bytes;
  auto making = provider_.make_volume(source_of(record.id), options);
  CO_TRY(co_await std::move(making));
  auto entry = audit_of(caller, "volume.create", record.id, {{"name", record.name}});
  auto insert = [record, entry, &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(insert_volume(database, record));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  if (auto stored = co_await store_.write(std::move(insert)); !stored) {
    auto removing = provider_.remove_storage(source_of(record.id));
    (void)co_await std::move(removing);
    co_return fail(std::move(stored).error());
  }
  co_return record;
}

asio::awaitable<Result<std::vector<VolumeRecord>>> Volumes::list(Caller caller) {
  auto look = [owner = caller.id](Database& database) { return list_volumes(database, owner); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<Volumes::Details>> Volumes::find(Caller caller, std::string name) {
  auto look = [owner = caller.id, name](Database& database) -> Result<Details> {
    Details details;
    details.record = TRY(find_volume_by_name(database, owner, name));
    details.uses = TRY(uses_of_volume(database, details.record.id));
    return details;
  };
  auto found = co_await store_.read(std::move(look));
  if (!found && found.error().code == Errc::not_found) co_return fail(unknown_volume(name));
  co_return found;
}

asio::awaitable<Result<void>> Volumes::remove(Caller caller, std::string name) {
  if (caller.role == Role::viewer) co_return fail(Errc::denied, "this key may only look");
  auto finding = find(caller, name);
  Details details = CO_TRY(co_await std::move(finding));
  if (!details.uses.empty())
    co_return fail(Errc::conflict,
                   "the volume is used by " + std::to_string(details.uses.size()) +
                       " session(s), " + details.uses[0].session + " among them",
                   "delete them first");
  auto closing = files_.close(source_of(details.record.id));
  co_await std::move(closing);
  auto removing = remove_when_free(&provider_, source_of(details.record.id));
  // What is not there any more was removed by one who died before it was written down.
  if (auto removed = co_await std::move(removing);
      !removed && removed.error().code != Errc::not_found)
    co_return fail(std::move(removed).error());
  auto entry = audit_of(caller, "volume.remove", details.record.id, {{"name", name}});
  auto forget = [id = details.record.id, entry,
                 &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(remove_volume(database, id));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  co_return co_await store_.write(std::move(forget));
}

asio::awaitable<Result<Volumes::Placed>> Volumes::place(std::string owner,
                                                        std::vector<VolumeMount> wanted) {
  Placed placed;
  if (wanted.empty()) co_return placed;
  auto look = [owner](Database& database) { return list_volumes(database, owner); };
  std::vector<VolumeRecord> own = CO_TRY(co_await store_.read(std::move(look)));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const VolumeMount& mount = wanted[i];
    const VolumeRecord* found = nullptr;
    for (const VolumeRecord& record : own)
      if (record.name == mount.name) found = &record;
    if (!found) {
      Error unknown = unknown_volume(mount.name);
      unknown.what = "/volumes/" + std::to_string(i) + ": " + unknown.what;
      co_return fail(std::move(unknown));
    }
    placed.mounts.push_back({source_of(found->id), mount.path, mount.read_only});
    placed.uses.push_back({found->id, "", mount.path, mount.read_only});
  }
  co_return placed;
}

asio::awaitable<void> Volumes::sweep(std::filesystem::path storage) {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(storage / kFolder, ec)) {
    std::string id = entry.path().filename().native();
    auto look = [id](Database& database) { return find_volume(database, id); };
    auto known = co_await store_.read(std::move(look));
    if (known || known.error().code != Errc::not_found) continue;
    auto removing = provider_.remove_storage(source_of(id));
    (void)co_await std::move(removing);
  }
}

}  // namespace asr
