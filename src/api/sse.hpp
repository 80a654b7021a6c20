// Server-sent events: a stream of messages over a plain answer.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "api/route.hpp"
#include "session/command.hpp"

namespace asr {

class EventStream {
 public:
  static constexpr std::chrono::seconds kHeartbeat{15};

  static bool is_wanted(const RequestHead& head);
  // Where the client was when it lost its connection.
  static std::optional<std::int64_t> last_id(const RequestHead& head);
  static asio::awaitable<Result<EventStream>> open(CallPtr call);

  asio::awaitable<Result<void>> send(std::string type, std::string id, std::string data);
  // Tells the client, and us, that the connection lives, if nothing was sent for some time.
  asio::awaitable<Result<void>> beat();
  asio::awaitable<Result<void>> end();

 private:
  explicit EventStream(CallPtr call) : call_(std::move(call)) {}

  CallPtr call_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

json::object output_event(const SessionCommand& command, const OutputLog::Piece& piece);
Result<int> signal_from(const json::value& value);  // 15, "TERM" or "SIGTERM"

}  // namespace asr
