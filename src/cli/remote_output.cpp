#include "cli/remote_output.hpp"

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>

#include "net/event_reader.hpp"
#include "session/bell.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostQueued = 1 << 20;
constexpr auto kPatience = 30s;

}  // namespace

// Between the thread and the event loop.
struct RemoteOutput::Shared : std::enable_shared_from_this<RemoteOutput::Shared> {
  explicit Shared(asio::any_io_executor given) : executor(std::move(given)), changed(executor) {}

  // With `change` made, wakes whoever waits on either side.
  template <class Change>
  void update(Change change) {
    {
      std::lock_guard lock(mutex);
      change();
    }
    asio::post(executor, [self = shared_from_this()] { self->changed.ring(); });
  }

  asio::any_io_executor executor;
  Bell changed;  // for the event loop, rung only there

  std::mutex mutex;
  std::condition_variable_any has_room;  // for the thread
  std::string id;
  std::deque<OutputChunk> chunks;
  std::size_t queued = 0;
  std::set<OutputChunk::Stream> dropped;
  std::optional<json::value> end;
  std::optional<Error> error;
};

// The thread's work.
class RemoteOutput::Follower {
 public:
  Follower(std::shared_ptr<Shared> shared, Remote remote, std::string session,
           std::stop_token unwanted)
      : shared_(std::move(shared)),
        remote_(std::move(remote)),
        session_(std::move(session)),
        unwanted_(std::move(unwanted)) {}

  void run(const json::object& request) {
    auto followed = start_and_follow(request);
    if (followed) return;
    shared_->update([&] {
      if (!shared_->error) shared_->error = followed.error();
    });
  }

 private:
  Result<void> start_and_follow(const json::object& request) {
    ClientRequest starting;
    starting.method = "POST";
    starting.body = to_text(request);
    starting.headers.add("Content-Type", "application/json");
    auto lost = listen(std::move(starting), session_path(session_, "/commands"));
    if (id_.empty()) {
      if (!lost) return fail(lost.error());
      return fail(Errc::internal, "the server does not tell which command it has started");
    }
    while (!has_ended_) {
      if (!lost) return fail(lost.error());
      if (!patience_.wait(unwanted_)) return fail(away());
      if (!remote_.is_ready()) continue;
      std::string rest = "/commands/" + id_ + "/output?offset=" + std::to_string(next_);
      lost = listen(ClientRequest(), session_path(session_, rest));
    }
    return {};
  }

  Error away() const {
    return Error(
        Errc::timeout, "the server does not answer any more",
        "the command may go on; its output: agent-sandbox logs -f " + session_ + " " + id_);
  }

  // One connection, to its end. Errors are those another one would have, too.
  Result<void> listen(ClientRequest request, const std::string& path) {
    EventReader reader;
    Result<void> taken;
    request.headers.add("Accept", "text/event-stream");
    request.write_body = [&](std::string_view bytes) {
      patience_.renew();
      taken = reader.feed(bytes, [this](const ServerEvent& event) { return take(event); });
      return taken.has_value();
    };
    auto answer = remote_.exchange(std::move(request), path);
    if (!taken) return fail(taken.error());
    if (!answer) return id_.empty() ? Result<void>(fail(answer.error())) : Result<void>();
    bool later = !id_.empty() && (answer->status == 429 || answer->status == 503);
    if (answer->status >= 300 && !later) return fail(error_in(*answer));
    return {};
  }

  Result<void> take(const ServerEvent& event) {
    json::value data = TRY(parse_json(event.data));
    if (!data.is_object()) return fail(Errc::internal, "the server sent no event");
    if (event.type == "output") return take_output(data);
    if (event.type == "command") {
      id_ = text_at(data, "command_id");
      shared_->update([this] { shared_->id = id_; });
    }
    if (event.type == "exit") {
      has_ended_ = true;
      shared_->update([&] { shared_->end = std::move(data); });
    }
    return {};
  }

  Result<void> take_output(const json::value& event) {
    OutputChunk chunk{OutputChunk::Stream::out, TRY(bytes_in(event))};
    if (text_at(event, "stream") == "stderr") chunk.stream = OutputChunk::Stream::err;
    const json::value* place = event.get_object().if_contains("offset");
    boost::system::error_code ec;
    std::uint64_t offset = place ? place->to_number<std::uint64_t>(ec) : 0;
    if (!place || ec) return fail(Errc::internal, "the server sent output without its place");
    if (offset > next_)
      return fail(Errc::gone, std::to_string(offset - next_) + " bytes of the output were lost",
                  "they came while the server was away, and it keeps only the last");
    next_ = offset + chunk.data.size();
    return push(std::move(chunk));
  }

  // Waits for room: the server waits then, and the program with it.
  Result<void> push(OutputChunk chunk) {
    std::unique_lock lock(shared_->mutex);
    auto has_room = [this] { return shared_->queued < kMostQueued; };
    if (!shared_->has_room.wait(lock, unwanted_, has_room))
      return fail(Errc::conflict, "nobody reads the output");
    lock.unlock();
    shared_->update([&] {
      if (shared_->dropped.contains(chunk.stream)) return;
      shared_->queued += chunk.data.size();
      shared_->chunks.push_back(std::move(chunk));
    });
    return {};
  }

  std::shared_ptr<Shared> shared_;
  Remote remote_;
  std::string session_;
  std::stop_token unwanted_;
  Patience patience_{kPatience};
  std::string id_;
  std::uint64_t next_ = 0;  // offset of the first byte that has not come yet
  bool has_ended_ = false;
};

RemoteOutput::RemoteOutput(asio::any_io_executor executor, Remote remote, std::string session,
                           json::object request)
    : shared_(std::make_shared<Shared>(std::move(executor))),
      thread_([shared = shared_, remote = std::move(remote), session = std::move(session),
               request = std::move(request)](const std::stop_token& unwanted) {
        Follower(shared, remote.another(unwanted), session, unwanted).run(request);
      }) {}

RemoteOutput::~RemoteOutput() = default;

asio::awaitable<Result<std::string>> RemoteOutput::started() {
  auto shared = shared_;
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (shared->error) co_return fail(*shared->error);
      if (!shared->id.empty()) co_return shared->id;
    }
    auto waiting = shared->changed.wait();
    co_await std::move(waiting);
  }
}

asio::awaitable<Result<std::optional<OutputChunk>>> RemoteOutput::read() {
  auto shared = shared_;
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (!shared->chunks.empty()) {
        OutputChunk chunk = std::move(shared->chunks.front());
        shared->chunks.pop_front();
        shared->queued -= chunk.data.size();
        shared->has_room.notify_one();
        co_return std::optional(std::move(chunk));
      }
      if (shared->error) co_return fail(*shared->error);
      if (shared->end) co_return std::nullopt;
    }
    auto waiting = shared->changed.wait();
    co_await std::move(waiting);
  }
}

asio::awaitable<Result<json::value>> RemoteOutput::ended() {
  auto shared = shared_;
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (shared->end) co_return *shared->end;
      if (shared->error) co_return fail(*shared->error);
    }
    auto waiting = shared->changed.wait();
    co_await std::move(waiting);
  }
}

asio::awaitable<bool> RemoteOutput::ends_within(std::chrono::milliseconds time) {
  auto shared = shared_;
  auto until = Bell::Clock::now() + time;
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (shared->end || shared->error) co_return true;
    }
    if (Bell::Clock::now() >= until) co_return false;
    auto waiting = shared->changed.wait(until);
    co_await std::move(waiting);
  }
}

void RemoteOutput::drop(OutputChunk::Stream stream) {
  std::lock_guard lock(shared_->mutex);
  shared_->dropped.insert(stream);
  std::erase_if(shared_->chunks, [&](const OutputChunk& chunk) {
    if (chunk.stream != stream) return false;
    shared_->queued -= chunk.data.size();
    return true;
  });
  shared_->has_room.notify_one();
}

void RemoteOutput::give_up(Error error) {
  shared_->update([&] { shared_->error = std::move(error); });
}

}  // namespace asr
