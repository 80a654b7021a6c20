// Tells owners of events by HTTP: signed, retried, never twice at once, never to addresses that are
// none of the sender's business.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "net/address_policy.hpp"
#include "session/caller.hpp"
#include "session/event_bus.hpp"
#include "store/webhook_deliveries.hpp"
#include "store/webhook_records.hpp"

namespace asr {

struct WebhookSettings {
  Reach reach = Reach::public_only;
  std::chrono::seconds time{5};  // for one delivery
  std::size_t most_per_owner = 20;
};

// On one thread, but for the deliveries themselves.
class Webhooks {
 public:
  Webhooks(asio::any_io_executor executor, Store& store, EventBus& events, const Log& log,
           WebhookSettings settings);
  ~Webhooks();

  // Once, at the start: takes up what an earlier run left.
  asio::awaitable<Result<void>> begin();

  struct Made {
    WebhookRecord record;
    std::string secret;  // told once
  };
  asio::awaitable<Result<Made>> make(Caller caller, std::string url,
                                     std::vector<std::string> types);
  asio::awaitable<Result<std::vector<WebhookRecord>>> list(Caller caller);
  asio::awaitable<Result<void>> remove(Caller caller, std::string id);

 private:
  struct Target {
    std::string owner;
    std::vector<std::string> types;  // empty: all
    bool wants(const EventRecord& event) const;
  };
  struct Parcel;  // one delivery, ready to be sent

  void remember(const WebhookRecord& record);
  asio::awaitable<void> watch_events();
  asio::awaitable<void> deliver_due();
  asio::awaitable<Result<void>> deliver(DeliveryRecord delivery);

  asio::any_io_executor executor_;
  Store& store_;
  EventBus& events_;
  const Log& log_;
  WebhookSettings settings_;
  std::map<std::string, Target> targets_;
  std::int64_t seen_ = 0;
  Bell work_;
  std::shared_ptr<bool> stopped_ = std::make_shared<bool>(false);
  boost::asio::thread_pool senders_{1};
};

// What a receiver checks: t=<seconds>,v1=<hmac-sha256 of "t.body" under the secret, in hex>.
std::string webhook_signature(std::string_view secret, std::int64_t seconds, std::string_view body);

}  // namespace asr
