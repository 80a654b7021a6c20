#include "api/key_ring.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "net/json.hpp"
#include "store/audit_records.hpp"

namespace asr {

namespace {

constexpr std::string_view kPrefix = "asr_";
constexpr std::size_t kShownCharacters = 8;
constexpr std::size_t kShortestKey = 16;

std::uint32_t most_sessions_of(const KeyRecord& record) {
  boost::system::error_code ec;
  json::value quotas = json::parse(record.quotas, ec);
  if (ec || !quotas.is_object()) return 0;
  const json::value* most = quotas.get_object().if_contains("sessions");
  return most && most->is_number() ? most->to_number<std::uint32_t>() : 0;
}

std::string new_key(NewKey::Form form) {
  if (form == NewKey::Form::own) return std::string(kPrefix) + random_name(32);
  return "e2b_" + to_hex(sha256(random_name(64))).substr(0, 40);
}

bool is_over(const KeyRecord& record) {
  return record.revoked_ms || (record.expires_ms != 0 && record.expires_ms <= now_ms());
}

}  // namespace

Result<void> KeyRing::load() {
  for (KeyRecord& record : TRY(store_.run([](Database& database) { return list_keys(database); })))
    remember(std::move(record));
  return {};
}

void KeyRing::remember(KeyRecord record) {
  hash_of_[record.id] = record.hash;
  by_hash_[record.hash] = std::move(record);
}

bool KeyRing::has_admin() const {
  return std::any_of(by_hash_.begin(), by_hash_.end(), [](const auto& entry) {
    return entry.second.role == "admin" && !is_over(entry.second);
  });
}

Result<KeyRing::Made> KeyRing::prepare(NewKey wanted) const {
  Made made;
  made.key = wanted.key ? *wanted.key : new_key(wanted.form);
  if (made.key.size() < kShortestKey)
    return fail(Errc::invalid,
                "a key must have at least " + std::to_string(kShortestKey) + " characters");
  made.record.id = "k" + random_name(12);
  made.record.name = std::move(wanted.name);
  made.record.role = std::string(to_string(wanted.role));
  made.record.prefix = made.key.substr(0, kShownCharacters);
  made.record.hash = sha256(made.key);
  made.record.created_ms = now_ms();
  made.record.expires_ms = wanted.expires_ms;
  made.record.quotas = to_text(json::object{{"sessions", wanted.most_sessions}});
  return made;
}

Result<KeyRing::Made> KeyRing::make_blocking(NewKey wanted) {
  Made made = TRY(prepare(std::move(wanted)));
  auto insert = [&](Database& database) { return insert_key(database, made.record); };
  TRY(store_.run(insert, Durability::machine));
  remember(made.record);
  return made;
}

boost::asio::awaitable<Result<KeyRing::Made>> KeyRing::make(Caller caller, NewKey wanted) {
  Made made = CO_TRY(prepare(std::move(wanted)));
  AuditEntry entry{now_ms(), caller.id, "key.create", made.record.id, "{}", caller.trace_id};
  auto insert = [record = made.record, entry,
                 &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(insert_key(database, record));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(insert), Durability::machine));
  remember(made.record);
  co_return made;
}

boost::asio::awaitable<Result<void>> KeyRing::revoke(Caller caller, std::string id) {
  auto found = hash_of_.find(id);
  if (found == hash_of_.end())
    co_return fail(Errc::not_found, "there is no such key", "GET /api/keys lists them");
  std::int64_t at = now_ms();
  AuditEntry entry{at, caller.id, "key.revoke", id, "{}", caller.trace_id};
  auto change = [id, at, entry, &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(revoke_key(database, id, at));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(change), Durability::machine));
  by_hash_[hash_of_[id]].revoked_ms = at;
  co_return Result<void>();
}

std::vector<KeyRecord> KeyRing::list() const {
  std::vector<KeyRecord> all;
  for (const auto& [hash, record] : by_hash_) all.push_back(record);
  std::sort(all.begin(), all.end(), [](const KeyRecord& a, const KeyRecord& b) {
    return std::tie(a.created_ms, a.id) < std::tie(b.created_ms, b.id);
  });
  return all;
}

bool KeyRing::knows(std::string_view id) const { return hash_of_.contains(std::string(id)); }

// Looking up a hash tells nothing about the key by its time: whoever chooses the key cannot choose
// its hash.
std::optional<Caller> KeyRing::find(std::string_view key) const {
  auto found = by_hash_.find(sha256(key));
  if (found == by_hash_.end() || is_over(found->second)) return std::nullopt;
  const KeyRecord& record = found->second;
  return Caller{record.id, parse_role(record.role).value_or(Role::viewer), most_sessions_of(record),
                ""};
}

bool KeyRing::still_holds(const Caller& caller) const {
  if (caller.valid_until_ms != 0) return caller.valid_until_ms > now_ms();
  auto hash = hash_of_.find(caller.id);
  return hash == hash_of_.end() || !is_over(by_hash_.at(hash->second));
}

}  // namespace asr
