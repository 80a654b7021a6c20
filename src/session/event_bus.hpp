// What happened, for whoever wants to know. An event is stored first, then announced here.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "session/bell.hpp"
#include "store/event_records.hpp"
#include "store/store.hpp"

namespace asr {

struct EventInterest {
  std::optional<std::string> owner;    // none: of everybody
  std::optional<std::string> session;  // none: of all sessions

  bool covers(const EventRecord& event) const {
    return (!owner || event.owner == *owner) && (!session || event.session == *session);
  }
};

// Recent events are answered from memory, older ones from the store.
class EventBus {
 public:
  EventBus(asio::any_io_executor executor, Store& store)
      : store_(store), bell_(std::move(executor)) {}

  void announce(EventRecord event);
  std::int64_t newest() const noexcept { return newest_; }
  void set_newest(std::int64_t id) noexcept { newest_ = id; }

  // Those after `id` that are of interest, at most `limit`; waits for one until the deadline.
  // `seen` becomes the id up to which everything was looked at.
  struct Batch {
    std::vector<EventRecord> events;
    std::int64_t seen = 0;
  };
  asio::awaitable<Result<Batch>> after(std::int64_t id, EventInterest interest, std::size_t limit,
                                       Bell::Clock::time_point deadline);

 private:
  std::deque<EventRecord>::const_iterator first_after(std::int64_t id) const;
  asio::awaitable<Result<Batch>> from_store(std::int64_t id, EventInterest interest,
                                            std::size_t limit);

  static constexpr std::size_t kRecent = 4096;
  Store& store_;
  Bell bell_;
  std::deque<EventRecord> recent_;  // without gaps
  std::int64_t newest_ = 0;
};

}  // namespace asr
