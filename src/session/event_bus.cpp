#include "session/event_bus.hpp"

#include <algorithm>

namespace asr {

std::deque<EventRecord>::const_iterator EventBus::first_after(std::int64_t id) const {
  return std::upper_bound(
      recent_.begin(), recent_.end(), id,
      [](std::int64_t wanted, const EventRecord& each) { return wanted < each.id; });
}

void EventBus::announce(EventRecord event) {
  // Commits come back in their order, but let us not depend on it.
  auto place = first_after(event.id);
  newest_ = std::max(newest_, event.id);
  recent_.insert(place, std::move(event));
  if (recent_.size() > kRecent) recent_.pop_front();
  bell_.ring();
}

asio::awaitable<Result<EventBus::Batch>> EventBus::from_store(std::int64_t id,
                                                              EventInterest interest,
                                                              std::size_t limit) {
  EventFilter filter;
  filter.after = id;
  filter.owner = interest.owner;
  filter.session = interest.session;
  filter.limit = static_cast<std::int64_t>(limit);
  auto work = [filter](Database& database) { return list_events(database, filter); };
  std::int64_t newest = newest_;
  Batch batch;
  batch.events = CO_TRY(co_await store_.read(std::move(work)));
  batch.seen = batch.events.size() < limit ? newest : batch.events.back().id;
  if (!batch.events.empty()) batch.seen = std::max(batch.seen, batch.events.back().id);
  co_return batch;
}

asio::awaitable<Result<EventBus::Batch>> EventBus::after(std::int64_t id, EventInterest interest,
                                                         std::size_t limit,
                                                         Bell::Clock::time_point deadline) {
  for (;;) {
    if (newest_ > id) {
      bool in_memory = !recent_.empty() && recent_.front().id <= id + 1;
      Batch batch;
      if (!in_memory) {
        auto reading = from_store(id, interest, limit);
        batch = CO_TRY(co_await std::move(reading));
      } else {
        batch.seen = newest_;
        for (auto event = first_after(id); event != recent_.end(); ++event) {
          if (!interest.covers(*event)) continue;
          batch.events.push_back(*event);
          if (batch.events.size() < limit) continue;
          batch.seen = event->id;
          break;
        }
      }
      if (!batch.events.empty()) co_return batch;
      id = std::max(id, batch.seen);
    }
    if (Bell::Clock::now() >= deadline) co_return Batch{{}, id};
    co_await bell_.wait(deadline);
  }
}

}  // namespace asr
