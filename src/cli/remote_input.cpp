#include "cli/remote_input.hpp"

#include <boost/asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "session/bell.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostAtOnce = 1 << 20;  // of one request; the server takes 4 MiB of JSON
constexpr auto kPatience = std::chrono::seconds(30);

json::object request_for(const std::string& data) {
  json::object request;
  if (data.empty()) return request;
  if (is_utf8(data))
    request["data"] = data;
  else
    request["data_base64"] = base64(data);
  return request;
}

}  // namespace

// Between the event loop and the thread.
struct RemoteInput::Shared : std::enable_shared_from_this<RemoteInput::Shared> {
  explicit Shared(boost::asio::any_io_executor given)
      : executor(std::move(given)), changed(executor) {}

  void tell_loop() {
    boost::asio::post(executor, [self = shared_from_this()] { self->changed.ring(); });
  }

  boost::asio::any_io_executor executor;
  Bell changed;  // for the event loop, rung only there

  std::mutex mutex;
  std::condition_variable_any has_work;  // for the thread
  std::string gathered;
  bool ends = false;
  bool is_done = false;
  std::optional<Error> error;
};

void RemoteInput::send_all(const std::stop_token& unwanted, Shared& shared, Remote remote,
                           const std::string& path, Repeat repeat,
                           const std::function<void(Error)>& lost) {
  auto has_work = [&] { return !shared.gathered.empty() || shared.ends; };
  for (bool ends = false; !ends;) {
    std::string data;
    {
      std::unique_lock lock(shared.mutex);
      if (!shared.has_work.wait(lock, unwanted, has_work)) return;
      data = std::exchange(shared.gathered, {});
      ends = shared.ends;
    }
    shared.tell_loop();
    json::object request = request_for(data);
    if (ends) request["eof"] = true;
    Repeat now = data.empty() ? Repeat::harmless : repeat;  // The end can be told twice.
    auto sent = remote.insist("POST", path, request, Patience(kPatience), now);
    if (sent) continue;
    // A program that has ended or closed its input is no failure of ours.
    Errc code = sent.error().code;
    if (code == Errc::os || code == Errc::timeout)
      lost(Error(Errc::os, "the server went away while it took input",
                 "how much of it has arrived is not known"));
    std::lock_guard lock(shared.mutex);
    shared.error = sent.error();
    ends = true;
  }
  {
    std::lock_guard lock(shared.mutex);
    shared.is_done = true;
  }
  shared.tell_loop();
}

RemoteInput::RemoteInput(boost::asio::any_io_executor executor, Remote remote, std::string path,
                         Repeat repeat, std::function<void(Error)> lost)
    : shared_(std::make_shared<Shared>(std::move(executor))),
      thread_([shared = shared_, remote = std::move(remote), path = std::move(path), repeat,
               lost = std::move(lost)](const std::stop_token& unwanted) {
        send_all(unwanted, *shared, remote.another(unwanted), path, repeat, lost);
      }) {}

RemoteInput::~RemoteInput() = default;

boost::asio::awaitable<Result<void>> RemoteInput::write(std::string data) {
  auto shared = shared_;
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (shared->error) co_return fail(*shared->error);
      if (shared->gathered.size() + data.size() <= kMostAtOnce) {
        shared->gathered += data;
        shared->has_work.notify_one();
        co_return Result<void>();
      }
    }
    auto waiting = shared->changed.wait();
    co_await std::move(waiting);
  }
}

boost::asio::awaitable<Result<void>> RemoteInput::close() {
  auto shared = shared_;
  {
    std::lock_guard lock(shared->mutex);
    shared->ends = true;
    shared->has_work.notify_one();
  }
  for (;;) {
    {
      std::lock_guard lock(shared->mutex);
      if (shared->error) co_return fail(*shared->error);
      if (shared->is_done) co_return Result<void>();
    }
    auto waiting = shared->changed.wait();
    co_await std::move(waiting);
  }
}

}  // namespace asr
