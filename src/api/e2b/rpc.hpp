// Calls of Connect over one exchange: a message each way, or a stream of them back.
#pragma once

#include <optional>
#include <string>

#include "api/e2b/connect.hpp"
#include "net/exchange.hpp"

namespace asr {

inline constexpr std::size_t kMostRpcMessage = 8 << 20;
inline constexpr std::size_t kMostRpcValues = 200'000;  // of JSON in one

// What a call that is no stream answers: a message, or an error with a code of its own.
struct Unary {
  json::object message;
  std::optional<ConnectError> error;

  static Unary failed(ConnectCode code, std::string message) {
    return {{}, ConnectError{code, std::move(message)}};
  }
};

Result<json::object> message_from(std::string_view text);

// Whether the Content-Type is that of such a call; otherwise 415 has been answered.
asio::awaitable<Result<bool>> admit_media(Exchange* exchange, std::string_view wanted);

asio::awaitable<Result<void>> answer_unary(Exchange* exchange, Result<Unary> answer);

// An answer of many messages. Each write leaves at once; what belongs together is added first and
// leaves in one.
class RpcStream {
 public:
  explicit RpcStream(Exchange* exchange) : exchange_(exchange) {}

  // The one message that a call of this kind sends.
  asio::awaitable<Result<json::object>> read_message();

  void add(const json::value& message) { append_message(buffer_, message); }
  std::size_t waiting() const noexcept { return buffer_.size(); }
  asio::awaitable<Result<void>> flush();
  // The end, which every stream has; what was added goes with it.
  asio::awaitable<Result<void>> finish(std::optional<ConnectError> error = std::nullopt);

 private:
  asio::awaitable<Result<void>> begin();

  Exchange* exchange_;
  std::string buffer_;
  bool begun_ = false;
};

}  // namespace asr
