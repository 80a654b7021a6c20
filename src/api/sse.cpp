#include "api/sse.hpp"

#include <charconv>

namespace asr {

bool EventStream::is_wanted(const RequestHead& head) {
  return head.headers.lists("accept", "text/event-stream");
}

std::optional<std::int64_t> EventStream::last_id(const RequestHead& head) {
  std::string_view text = head.headers.get("last-event-id");
  std::int64_t id = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || ec != std::errc() || end != text.data() + text.size() || id < 0)
    return std::nullopt;
  return id;
}

asio::awaitable<Result<EventStream>> EventStream::open(CallPtr call) {
  Response head;
  head.headers.add("Content-Type", "text/event-stream");
  head.headers.add("Cache-Control", "no-store");
  head.headers.add("X-Accel-Buffering", "no");
  auto beginning = call->exchange->begin(std::move(head), std::nullopt);
  CO_TRY(co_await std::move(beginning));
  co_return EventStream(std::move(call));
}

// `data` is JSON on one line.
asio::awaitable<Result<void>> EventStream::send(std::string type, std::string id,
                                                std::string data) {
  std::string text;
  if (!id.empty()) text += "id: " + id + "\n";
  text += "event: " + type + "\ndata: " + data + "\n\n";
  last_ = std::chrono::steady_clock::now();
  auto writing = call_->exchange->write(std::move(text));
  co_return co_await std::move(writing);
}

asio::awaitable<Result<void>> EventStream::beat() {
  if (std::chrono::steady_clock::now() - last_ < kHeartbeat) co_return Result<void>();
  last_ = std::chrono::steady_clock::now();
  auto writing = call_->exchange->write(": still here\n\n");
  co_return co_await std::move(writing);
}

asio::awaitable<Result<void>> EventStream::end() {
  auto ending = call_->exchange->end();
  co_return co_await std::move(ending);
}

}  // namespace asr
