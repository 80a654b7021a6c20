#include "session/webhooks.hpp"

#include <openssl/hmac.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "base/id.hpp"
#include "net/http_client.hpp"
#include "net/json.hpp"
#include "store/audit_records.hpp"
#include "store/meta_records.hpp"

namespace asr {

namespace {

constexpr std::string_view kSeen = "webhooks.seen";
constexpr std::int64_t kKeptDeliveries = 1000;
// After so many seconds a delivery that failed is tried again; then it is given up.
constexpr std::array<std::int64_t, 7> kWaits{1, 5, 30, 120, 600, 1800, 3600};

std::optional<std::int64_t> next_try(std::int64_t attempts) {
  if (attempts >= static_cast<std::int64_t>(kWaits.size())) return std::nullopt;
  std::int64_t wait = kWaits[static_cast<std::size_t>(attempts)] * 1000;
  // Those that failed together need not come back together.
  return now_ms() + wait + static_cast<std::int64_t>(random_name(1)[0]) % 32 * wait / 128;
}

std::vector<std::string> types_in(const std::string& text) {
  std::vector<std::string> types;
  boost::system::error_code ec;
  json::value list = json::parse(text, ec);
  if (!ec && list.is_array())
    for (const json::value& each : list.get_array())
      if (each.is_string()) types.emplace_back(each.get_string());
  return types;
}

}  // namespace

struct Webhooks::Parcel {
  std::string url;
  std::string secret;
  std::string body;
  std::int64_t event_id = 0;
  std::string type;
};

std::string webhook_signature(std::string_view secret, std::int64_t seconds,
                              std::string_view body) {
  std::string text = std::to_string(seconds) + "." + std::string(body);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return "t=" + std::to_string(seconds) +
         ",v1=" + to_hex(std::string_view(reinterpret_cast<char*>(digest), size));
}

namespace {

// The address is looked up and judged once, and that one is used: a name cannot change its mind
// between.
Result<void> post(const std::string& url, const std::string& secret, const std::string& body,
                  std::int64_t event_id, const std::string& type, const WebhookSettings& settings) {
  WebAddress address = TRY(parse_web_address(url));
  std::vector<std::string> found = TRY(resolve_allowed(address.host, address.port, settings.reach));
  ClientRequest request;
  request.method = "POST";
  request.url = url;
  request.body = body;
  request.pin = {address.host, address.port, found.front()};
  request.connect_time = request.total_time = settings.time;
  request.headers.add("Content-Type", "application/json");
  request.headers.add("User-Agent", "agent-sandbox");
  request.headers.add("X-Agent-Sandbox-Event", type);
  request.headers.add("X-Agent-Sandbox-Delivery", std::to_string(event_id));
  request.headers.add("X-Agent-Sandbox-Signature",
                      webhook_signature(secret, now_ms() / 1000, body));
  HttpClient client;
  ClientResponse response = TRY(client.send(request));
  if (response.status < 200 || response.status >= 300)
    return fail(Errc::os, "it answered " + std::to_string(response.status));
  return {};
}

}  // namespace

bool Webhooks::Target::wants(const EventRecord& event) const {
  return event.owner == owner &&
         (types.empty() || std::find(types.begin(), types.end(), event.type) != types.end());
}

Webhooks::Webhooks(asio::any_io_executor executor, Store& store, EventBus& events, const Log& log,
                   WebhookSettings settings)
    : executor_(std::move(executor)),
      store_(store),
      events_(events),
      log_(log),
      settings_(settings),
      work_(executor_) {}

Webhooks::~Webhooks() {
  *stopped_ = true;
  senders_.stop();
  senders_.join();
}

void Webhooks::remember(const WebhookRecord& record) {
  if (record.active) targets_[record.id] = {record.owner, types_in(record.events)};
}

asio::awaitable<Result<void>> Webhooks::begin() {
  auto load = [](Database& database) { return list_all_webhooks(database); };
  std::vector<WebhookRecord> records = CO_TRY(co_await store_.read(std::move(load)));
  for (const WebhookRecord& record : records) remember(record);
  auto look = [](Database& database) { return find_meta(database, kSeen); };
  auto seen = CO_TRY(co_await store_.read(std::move(look)));
  seen_ = seen ? std::strtoll(seen->c_str(), nullptr, 10) : events_.newest();
  asio::co_spawn(executor_, watch_events(), asio::detached);
  asio::co_spawn(executor_, deliver_due(), asio::detached);
  co_return Result<void>();
}

// Events become deliveries in the store first, together with how far it got.
asio::awaitable<void> Webhooks::watch_events() {
  auto stopped = stopped_;
  while (!*stopped) {
    auto waiting = events_.after(seen_, {}, 200, Bell::Clock::time_point::max());
    auto batch = co_await std::move(waiting);
    if (*stopped) co_return;
    if (!batch || targets_.empty()) {
      seen_ = batch ? batch->seen : seen_;
      continue;
    }
    std::vector<std::pair<std::string, std::int64_t>> wanted;
    for (const EventRecord& event : batch->events)
      for (const auto& [id, target] : targets_)
        if (target.wants(event)) wanted.emplace_back(id, event.id);
    auto keep = [wanted, seen = batch->seen](Database& database) -> Result<void> {
      for (const auto& [webhook, event] : wanted)
        TRY(enqueue_delivery(database, webhook, event, now_ms()));
      return set_meta(database, kSeen, std::to_string(seen));
    };
    auto kept = co_await store_.write(std::move(keep));
    if (*stopped) co_return;
    if (!kept) log_.error("webhooks cannot be queued", {{"why", kept.error().what}});
    seen_ = batch->seen;
    if (!wanted.empty()) work_.ring();
  }
}

asio::awaitable<void> Webhooks::deliver_due() {
  auto stopped = stopped_;
  while (!*stopped) {
    auto look = [](Database& database) { return due_deliveries(database, now_ms(), 50); };
    auto due = targets_.empty() ? Result<std::vector<DeliveryRecord>>()
                                : co_await store_.read(std::move(look));
    if (*stopped) co_return;
    bool any = due && !due->empty();
    if (any)
      for (DeliveryRecord& delivery : *due) {
        auto delivering = deliver(std::move(delivery));
        (void)co_await std::move(delivering);
        if (*stopped) co_return;
      }
    // Nothing to do wakes nobody; something to try again is looked for every second.
    if (!any)
      co_await work_.wait(targets_.empty() ? Bell::Clock::time_point::max()
                                           : Bell::Clock::now() + std::chrono::seconds(1));
  }
}

asio::awaitable<Result<void>> Webhooks::deliver(DeliveryRecord delivery) {
  auto stopped = stopped_;
  auto pack = [delivery, &secrets = store_.secrets()](Database& database) -> Result<Parcel> {
    WebhookRecord webhook = TRY(find_webhook(database, delivery.webhook));
    EventFilter filter;
    filter.after = delivery.event_id - 1;
    filter.limit = 1;
    std::vector<EventRecord> events = TRY(list_events(database, filter));
    if (events.empty() || events[0].id != delivery.event_id)
      return fail(Errc::not_found, "the event is no longer kept");
    const EventRecord& event = events[0];
    json::object body{{"id", event.id},
                      {"at", iso_time(event.at_ms)},
                      {"type", event.type},
                      {"session_id", event.session}};
    boost::system::error_code ec;
    body["data"] = json::parse(event.data, ec);
    std::string secret = TRY(secrets.open(webhook.sealed, webhook.id));
    return Parcel{webhook.url, std::move(secret), to_text(body), event.id, event.type};
  };
  auto parcel = co_await store_.read(std::move(pack));
  Result<void> sent;
  if (parcel) {
    auto send = [what = *parcel, settings = settings_]() -> asio::awaitable<Result<void>> {
      co_return post(what.url, what.secret, what.body, what.event_id, what.type, settings);
    };
    sent = co_await asio::co_spawn(senders_, send(), asio::use_awaitable);
  } else {
    sent = fail(parcel.error());
    delivery.attempts = static_cast<std::int64_t>(kWaits.size());
  }
  if (*stopped) co_return Result<void>();
  std::string why = sent ? "" : sent.error().what;
  auto note = [delivery, ok = sent.has_value(), why](Database& database) -> Result<void> {
    if (ok)
      TRY(delivery_done(database, delivery.id));
    else
      TRY(delivery_failed(database, delivery.id, next_try(delivery.attempts), why));
    TRY(trim_deliveries(database, delivery.webhook, kKeptDeliveries));
    return {};
  };
  co_return co_await store_.write_soon(std::move(note));
}

asio::awaitable<Result<Webhooks::Made>> Webhooks::make(Caller caller, std::string url,
                                                       std::vector<std::string> types) {
  CO_TRY(parse_web_address(url));
  std::size_t own = 0;
  for (const auto& [id, target] : targets_) own += target.owner == caller.id;
  if (own >= settings_.most_per_owner)
    co_return fail(Errc::exhausted, "this key has as many webhooks as it may");
  Made made;
  made.secret = "whsec_" + random_name(32);
  made.record.id = "w" + random_name(12);
  made.record.owner = caller.id;
  made.record.url = std::move(url);
  json::array list;
  for (const std::string& type : types) list.emplace_back(type);
  made.record.events = to_text(list);
  made.record.sealed = store_.secrets().seal(made.secret, made.record.id);
  made.record.created_ms = now_ms();
  AuditEntry entry{now_ms(), caller.id, "webhook.create", made.record.id, "{}", caller.trace_id};
  bool first = targets_.empty();
  auto insert = [record = made.record, entry, first, newest = events_.newest(),
                 &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(insert_webhook(database, record));
    if (first) TRY(set_meta(database, kSeen, std::to_string(newest)));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(insert), Durability::machine));
  remember(made.record);
  work_.ring();
  co_return made;
}

asio::awaitable<Result<std::vector<WebhookRecord>>> Webhooks::list(Caller caller) {
  auto look = [owner = caller.id](Database& database) { return list_webhooks(database, owner); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<void>> Webhooks::remove(Caller caller, std::string id) {
  auto found = targets_.find(id);
  if (found == targets_.end() || found->second.owner != caller.id)
    co_return fail(Errc::not_found, "there is no such webhook", "GET /api/webhooks lists yours");
  AuditEntry entry{now_ms(), caller.id, "webhook.delete", id, "{}", caller.trace_id};
  auto erase = [id, entry, &secrets = store_.secrets()](Database& database) -> Result<void> {
    TRY(remove_webhook(database, id));
    TRY(append_audit(database, secrets, entry));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(erase)));
  targets_.erase(id);
  co_return Result<void>();
}

}  // namespace asr
