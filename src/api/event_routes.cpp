// What happened: a list to page through, or a stream that can be taken up again where it broke.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/json/parse.hpp>

#include "api/api.hpp"
#include "api/sse.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

json::object json_of(const EventRecord& event) {
  boost::system::error_code ec;
  json::value data = json::parse(event.data, ec);
  return {{"id", event.id},
          {"at", iso_time(event.at_ms)},
          {"type", event.type},
          {"session_id", event.session},
          {"data", ec ? json::value(json::object()) : std::move(data)}};
}

EventInterest interest_of(const Call& call) {
  EventInterest interest;
  if (call.caller.role < Role::oper) interest.owner = call.caller.id;
  interest.session = call.head().parameter("session_id");
  return interest;
}

// Nothing is expected from the client, but its pings and its leaving are heard by reading.
asio::awaitable<void> hear_end(std::shared_ptr<WebSocket> socket, std::shared_ptr<bool> closed) {
  while (!*closed) {
    auto reading = socket->read();
    auto message = co_await std::move(reading);
    if (!message || !*message) *closed = true;
  }
}

asio::awaitable<Result<Reply>> stream_over_socket(ApiParts parts, CallPtr call,
                                                  std::int64_t after) {
  auto opening = call->exchange->upgrade("", 4096);
  std::shared_ptr<WebSocket> socket = CO_TRY(co_await std::move(opening));
  auto closed = std::make_shared<bool>(false);
  asio::co_spawn(parts.executor, hear_end(socket, closed), asio::detached);
  EventInterest interest = interest_of(*call);
  while (!*closed) {
    auto waiting =
        parts.sessions.events().after(after, interest, 100, Bell::Clock::now() + kLookAgain);
    EventBus::Batch batch = CO_TRY(co_await std::move(waiting));
    after = batch.seen;
    for (const EventRecord& event : batch.events) {
      WebSocket::Message message{false, to_text(json_of(event))};
      auto writing = socket->write(std::move(message));
      if (auto written = co_await std::move(writing); !written) *closed = true;
    }
    if (!*closed && !parts.keys.still_holds(call->caller)) {
      co_await socket->close(4401, "the key is no longer valid");
      *closed = true;
    }
  }
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> stream(ApiParts parts, CallPtr call, std::int64_t after) {
  auto opening = EventStream::open(call);
  EventStream out = CO_TRY(co_await std::move(opening));
  EventInterest interest = interest_of(*call);
  for (;;) {
    auto waiting = parts.sessions.events().after(after, interest, 100,
                                                 Bell::Clock::now() + std::chrono::seconds(3));
    EventBus::Batch batch = CO_TRY(co_await std::move(waiting));
    after = batch.seen;
    for (const EventRecord& event : batch.events) {
      auto sending = out.send(event.type, std::to_string(event.id), to_text(json_of(event)));
      CO_TRY(co_await std::move(sending));
    }
    if (!parts.keys.still_holds(call->caller)) break;
    auto beating = out.beat();
    CO_TRY(co_await std::move(beating));
  }
  auto ending = out.end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> events(ApiParts parts, CallPtr call) {
  bool streams = EventStream::is_wanted(call->head()) || call->exchange->wants_websocket();
  // A stream begins now, a list at the beginning.
  std::int64_t standard = streams ? parts.sessions.events().newest() : 0;
  std::int64_t after = CO_TRY(call->number("after", standard, 0, INT64_MAX));
  std::int64_t limit = CO_TRY(call->number("limit", 100, 1, 1000));
  if (call->exchange->wants_websocket()) {
    auto streaming = stream_over_socket(parts, call, after);
    co_return co_await std::move(streaming);
  }
  if (streams) {
    if (auto last = EventStream::last_id(call->head())) after = *last;
    auto streaming = stream(parts, call, after);
    co_return co_await std::move(streaming);
  }
  auto asking = parts.sessions.events().after(after, interest_of(*call),
                                              static_cast<std::size_t>(limit), Bell::Clock::now());
  EventBus::Batch batch = CO_TRY(co_await std::move(asking));
  json::array list;
  for (const EventRecord& event : batch.events) list.push_back(json_of(event));
  json::object body{{"events", std::move(list)}, {"next_after", batch.seen}};
  co_return Reply{200, std::move(body), false, {}};
}

}  // namespace

std::vector<Route> event_routes(const ApiParts& parts) {
  Route route{
      "GET",
      "/api/events",
      "listEvents",
      "events",
      "What happened: as JSON, as a stream with Accept: text/event-stream, or as a WebSocket",
      [parts](CallPtr call) { return events(parts, std::move(call)); },
      {{200, "Events", "EventList"},
       {200, "Events", "", "text/event-stream"},
       {101, "The connection is a WebSocket now"}}};
  route.parameters = {{"after", "Only those after this id", "integer"},
                      {"session_id", "Only of this session"},
                      {"limit", "At most so many", "integer"}};
  return {std::move(route)};
}

}  // namespace asr
