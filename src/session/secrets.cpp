#include "session/secrets.hpp"

#include "base/clock.hpp"
#include "base/id.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr std::string_view kOpen = "${secret.";
constexpr std::size_t kMostOfOne = 200;
constexpr std::size_t kLongestName = 128;
constexpr std::size_t kLongestValue = 8 << 10;

Error unknown(const std::string& name) {
  return Error(Errc::not_found, "there is no secret \"" + name + "\"");
}

Result<void> check_name(const std::string& name) {
  if (!name.empty() && name.size() <= kLongestName &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") == std::string::npos)
    return {};
  return fail(Errc::invalid, "a secret's name has letters, digits, and - _ .");
}

Result<void> check_value(const std::string& value) {
  if (!value.empty() && value.size() <= kLongestValue) return {};
  return fail(Errc::invalid, "a secret has 1 to 8192 bytes");
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// The value with its secrets in place; the name of one that is not there is the error's `what`.
Result<std::string> filled(const std::string& text,
                           const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t at = 0;;) {
    std::size_t open = text.find(kOpen, at);
    out += text.substr(at, open - at);
    if (open == std::string::npos) return out;
    std::size_t close = text.find('}', open);
    if (close == std::string::npos) return fail(unknown(text.substr(open)));
    std::string name = lower(text.substr(open + kOpen.size(), close - open - kOpen.size()));
    auto found = values.find(name);
    if (found == values.end()) return fail(unknown(name));
    out += found->second;
    at = close + 1;
  }
}

}  // namespace

bool names_secrets(const EgressPolicy& policy) {
  for (const auto& rule : policy.rules())
    for (const EgressCredential& credential : rule->credentials)
      if (credential.value.find(kOpen) != std::string::npos) return true;
  return false;
}

asio::awaitable<Result<SecretRecord>> SecretKeeper::create(Caller caller, std::string name,
                                                           std::string value,
                                                           std::string metadata) {
  name = lower(std::move(name));
  CO_TRY(check_name(name));
  CO_TRY(check_value(value));
  SecretRecord record;
  record.id = random_name(26);
  record.owner = caller.id;
  record.name = std::move(name);
  record.metadata = std::move(metadata);
  record.created_ms = record.updated_ms = now_ms();
  record.sealed = store_.secrets().seal(value, record.id);
  auto entry = audit_of(caller, "secret.create", record.id, {{"name", record.name}});
  auto insert = [record, entry, &secrets = store_.secrets()](Database& database) -> Result<void> {
    auto own = TRY(list_secrets(database, record.owner));
    for (const SecretRecord& other : own)
      if (other.name == record.name)
        return fail(Errc::conflict, "there is a secret \"" + record.name + "\" already");
    if (own.size() >= kMostOfOne)
      return fail(Errc::exhausted, "this key has as many secrets as it may", "remove some");
    TRY(insert_secret(database, record));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(insert)));
  co_return record;
}

asio::awaitable<Result<SecretRecord>> SecretKeeper::update(Caller caller, std::string id_or_name,
                                                           std::string value,
                                                           std::optional<std::string> metadata) {
  CO_TRY(check_value(value));
  auto finding = find(caller, std::move(id_or_name));
  SecretRecord record = CO_TRY(co_await std::move(finding));
  ++record.version;
  record.updated_ms = now_ms();
  if (metadata) record.metadata = std::move(*metadata);
  record.sealed = store_.secrets().seal(value, record.id);
  auto entry = audit_of(caller, "secret.update", record.id, {{"name", record.name}});
  auto change = [record, entry, &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(update_secret(database, record));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(change)));
  co_return record;
}

asio::awaitable<Result<std::vector<SecretRecord>>> SecretKeeper::list(Caller caller) {
  auto look = [owner = caller.id](Database& database) { return list_secrets(database, owner); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<SecretRecord>> SecretKeeper::find(Caller caller, std::string id_or_name) {
  auto look = [owner = caller.id, name = lower(id_or_name)](Database& database) {
    return find_secret(database, owner, name);
  };
  auto found = co_await store_.read(std::move(look));
  if (!found && found.error().code == Errc::not_found) co_return fail(unknown(id_or_name));
  co_return found;
}

asio::awaitable<Result<void>> SecretKeeper::remove(Caller caller, std::string id_or_name) {
  auto finding = find(caller, std::move(id_or_name));
  SecretRecord record = CO_TRY(co_await std::move(finding));
  auto entry = audit_of(caller, "secret.remove", record.id, {{"name", record.name}});
  auto forget = [id = record.id, entry,
                 &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(remove_secret(database, id));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  co_return co_await store_.write(std::move(forget));
}

asio::awaitable<Result<EgressPolicy>> SecretKeeper::fill_in(std::string owner, EgressPolicy policy,
                                                            Missing missing) {
  if (!names_secrets(policy)) co_return policy;
  auto look = [owner](Database& database) { return list_secrets(database, owner); };
  std::vector<SecretRecord> records = CO_TRY(co_await store_.read(std::move(look)));
  std::map<std::string, std::string> values;
  for (const SecretRecord& record : records)
    values[record.name] = CO_TRY(store_.secrets().open(record.sealed, record.id));
  std::vector<EgressRule> rules;
  for (const auto& rule : policy.rules()) {
    EgressRule copy = *rule;
    copy.credentials.clear();
    for (EgressCredential credential : rule->credentials) {
      auto value = filled(credential.value, values);
      if (!value && missing == Missing::refused)
        co_return fail(Errc::invalid, value.error().what, "make it first");
      if (!value) continue;
      credential.value = std::move(*value);
      copy.credentials.push_back(std::move(credential));
    }
    rules.push_back(std::move(copy));
  }
  co_return EgressPolicy::make(std::move(rules), policy.scope(), policy.most_bytes());
}

}  // namespace asr
