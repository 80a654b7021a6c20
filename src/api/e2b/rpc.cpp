#include "api/e2b/rpc.hpp"

namespace asr {

Result<json::object> message_from(std::string_view text) {
  if (text.empty()) return json::object();
  json::value value = TRY(parse_json(text, kMostRpcValues));
  if (!value.is_object()) return fail(Errc::invalid, "the message is no JSON object");
  return std::move(value.as_object());
}

asio::awaitable<Result<bool>> admit_media(Exchange* exchange, std::string_view wanted) {
  if (is_media(exchange->head().headers.get("content-type"), wanted)) co_return true;
  Response response;
  response.status = 415;
  response.headers.add("Accept-Post", std::string(wanted));
  auto responding = exchange->respond(std::move(response));
  CO_TRY(co_await std::move(responding));
  co_return false;
}

asio::awaitable<Result<void>> answer_unary(Exchange* exchange, Result<Unary> answer) {
  std::optional<ConnectError> error;
  if (!answer)
    error = connect_error(answer.error());
  else if (answer->error)
    error = std::move(answer->error);
  Response response;
  response.headers.add("Content-Type", "application/json");
  response.status = error ? status_of(error->code) : 200;
  response.body = to_text(error ? json_of(*error) : answer->message);
  auto responding = exchange->respond(std::move(response));
  co_return co_await std::move(responding);
}

asio::awaitable<Result<json::object>> RpcStream::read_message() {
  auto reading = exchange_->read_body(kMostRpcMessage + Envelope::kHead);
  std::string body = CO_TRY(co_await std::move(reading));
  EnvelopeReader reader(kMostRpcMessage);
  reader.feed(body);
  auto envelope = CO_TRY(reader.next());
  if (!envelope || (envelope->flags & Envelope::kEnd) != 0)
    co_return fail(Errc::invalid, "the request has no message");
  if (!reader.is_between()) co_return fail(Errc::invalid, "the request has more than one message");
  co_return message_from(envelope->payload);
}

asio::awaitable<Result<void>> RpcStream::begin() {
  if (std::exchange(begun_, true)) co_return Result<void>();
  Response head;
  head.headers.add("Content-Type", "application/connect+json");
  head.headers.add("X-Accel-Buffering", "no");
  exchange_->hold_head();
  auto beginning = exchange_->begin(std::move(head), std::nullopt);
  co_return co_await std::move(beginning);
}

asio::awaitable<Result<void>> RpcStream::flush() {
  auto beginning = begin();
  CO_TRY(co_await std::move(beginning));
  auto writing = exchange_->write(std::exchange(buffer_, {}));
  co_return co_await std::move(writing);
}

asio::awaitable<Result<void>> RpcStream::finish(std::optional<ConnectError> error) {
  append_end(buffer_, error);
  auto beginning = begin();
  CO_TRY(co_await std::move(beginning));
  auto writing = exchange_->write_last(std::exchange(buffer_, {}));
  co_return co_await std::move(writing);
}

}  // namespace asr
