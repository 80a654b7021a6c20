#include "api/e2b/watch_calls.hpp"

#include "api/e2b/file_work.hpp"
#include "api/e2b/watching.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostWatchers = 64;    // of one sandbox
constexpr std::chrono::hours kForgotten{1};  // A watcher nobody asked for so long is removed.
constexpr std::chrono::seconds kLookAfterClient{5};

struct Watched {
  std::shared_ptr<Watching> watching;
  std::optional<ConnectError> error;
};

asio::awaitable<Result<Watched>> watch(EnvdCallPtr call, const json::object* message) {
  Watching::Options options;
  options.path = call->resolve(CO_TRY(text_field(*message, "path")));
  options.recursive = CO_TRY(bool_field(*message, "recursive", false));
  options.entries = CO_TRY(bool_field(*message, "includeEntry", false));
  auto looking = describe_file(call, options.path);
  auto folder = co_await std::move(looking);
  if (!folder && folder.error().code == Errc::not_found)
    co_return Watched{nullptr,
                      ConnectError{ConnectCode::not_found, "path not found: " + options.path}};
  json::object found = CO_TRY(std::move(folder));
  if (found["type"] != "FILE_TYPE_DIRECTORY")
    co_return Watched{nullptr, ConnectError{ConnectCode::invalid_argument,
                                            "path is not a directory: " + options.path}};
  auto work = [call, path = options.path](std::string user) {
    return call->sandbox->watch(path, std::move(user));
  };
  auto starting = with_rights<std::unique_ptr<Watch>>(call, std::move(work));
  auto source = CO_TRY(co_await std::move(starting));
  auto watching =
      std::make_shared<Watching>(call->parts.executor, std::move(source), std::move(options));
  watching->begin();
  co_return Watched{std::move(watching), {}};
}

// What was seen, with what is there now where that is wanted and can be had.
asio::awaitable<json::array> events_of(EnvdCallPtr call, std::shared_ptr<Watching> watching) {
  json::array events;
  std::deque<WatchEvent> seen = watching->take();
  for (const WatchEvent& each : seen) {
    auto event = filesystem_event(each);
    if (!event) continue;
    bool is_there =
        each.kind != WatchEvent::Kind::removed && each.kind != WatchEvent::Kind::moved_from;
    if (watching->options().entries && is_there) {
      auto describing = describe_file(call, watching->options().path + "/" + each.path);
      auto entry = co_await std::move(describing);
      if (entry) (*event)["entry"] = *std::move(entry);
    }
    events.push_back(*std::move(event));
  }
  co_return events;
}

asio::awaitable<Result<void>> tell_changes(EnvdCallPtr call, std::shared_ptr<Watching> watching) {
  Sessions::Hold hold(&call->parts.sessions, call->session);
  RpcStream out(call->exchange);
  auto keepalive = keepalive_interval(call->head().headers.get("keepalive-ping-interval"));
  auto quiet_since = Bell::Clock::now();
  out.add(json::object{{"start", json::object()}});
  for (;;) {
    auto asking = events_of(call, watching);
    json::array events = co_await std::move(asking);
    for (json::value& event : events) out.add(json::object{{"filesystem", std::move(event)}});
    auto now = Bell::Clock::now();
    if (out.waiting() == 0 && now - quiet_since >= keepalive)
      out.add(json::object{{"keepalive", json::object()}});
    if (out.waiting() > 0) {
      auto flushing = out.flush();
      CO_TRY(co_await std::move(flushing));
      quiet_since = now;
      continue;
    }
    if (watching->is_over()) break;
    co_await watching->wait(std::min(quiet_since + keepalive, now + kLookAfterClient));
    if (!call->is_awake() || !call->exchange->is_client_there()) co_return Result<void>();
  }
  if (!call->is_awake()) co_return Result<void>();
  auto finishing = out.finish();
  co_return co_await std::move(finishing);
}

void forget_old(EnvdMemory& memory) {
  auto now = Bell::Clock::now();
  std::erase_if(memory.watchers, [&](const auto& entry) {
    if (now - entry.second->asked() > kForgotten) entry.second->close();
    return entry.second->is_over();
  });
}

}  // namespace

Answering watch_dir(EnvdCallPtr call) {
  RpcStream stream(call->exchange);
  auto reading = stream.read_message();
  auto message = co_await std::move(reading);
  Result<Watched> watched = Watched();
  if (message) {
    auto starting = watch(call, &*message);
    watched = co_await std::move(starting);
  } else {
    watched = fail(message.error());
  }
  if (watched && watched->watching) {
    auto telling = tell_changes(call, watched->watching);
    auto told = co_await std::move(telling);
    watched->watching->close();
    co_return told;
  }
  ConnectError error = watched ? *watched->error : connect_error(watched.error());
  auto finishing = stream.finish(std::move(error));
  co_return co_await std::move(finishing);
}

asio::awaitable<Result<Unary>> create_watcher(EnvdCallPtr call, json::object message) {
  forget_old(*call->memory);
  if (call->memory->watchers.size() >= kMostWatchers)
    co_return fail(Errc::exhausted, "the sandbox has as many watchers as it may",
                   "remove some of them");
  auto starting = watch(call, &message);
  Watched watched = CO_TRY(co_await std::move(starting));
  if (watched.error) co_return Unary{{}, std::move(watched.error)};
  std::string id = "w" + std::to_string(++call->memory->last_watcher);
  call->memory->watchers[id] = std::move(watched.watching);
  co_return Unary{{{"watcherId", id}}, {}};
}

asio::awaitable<Result<Unary>> watcher_events(EnvdCallPtr call, json::object message) {
  std::string id = CO_TRY(text_field(message, "watcherId"));
  auto found = call->memory->watchers.find(id);
  if (found == call->memory->watchers.end())
    co_return Unary::failed(ConnectCode::not_found, "watcher with id " + id + " not found");
  auto asking = events_of(call, found->second);
  json::array events = co_await std::move(asking);
  co_return Unary{{{"events", std::move(events)}}, {}};
}

asio::awaitable<Result<Unary>> remove_watcher(EnvdCallPtr call, json::object message) {
  std::string id = CO_TRY(text_field(message, "watcherId"));
  auto found = call->memory->watchers.find(id);
  if (found == call->memory->watchers.end())
    co_return Unary::failed(ConnectCode::not_found, "watcher with id " + id + " not found");
  found->second->close();
  call->memory->watchers.erase(found);
  co_return Unary{};
}

}  // namespace asr
