#include "net/web_socket.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/stream.hpp>

namespace asr {

namespace websocket = beast::websocket;

namespace {

websocket::stream_base::decorator speaking(std::string protocol) {
  return websocket::stream_base::decorator(
      [protocol = std::move(protocol)](websocket::response_type& response) {
        response.set(beast::http::field::sec_websocket_protocol, protocol);
      });
}

template <class Stream>
class ServerWebSocket final : public WebSocket {
 public:
  explicit ServerWebSocket(Stream stream) : socket_(std::move(stream)) {}

  asio::awaitable<Result<void>> accept(UpgradeRequest request, std::string protocol,
                                       std::size_t most) {
    websocket::stream_base::timeout times;
    times.handshake_timeout = std::chrono::seconds(10);
    times.idle_timeout = std::chrono::seconds(60);
    times.keep_alive_pings = true;  // A peer that is there answers, so only dead ones run into it.
    socket_.set_option(times);
    socket_.read_message_max(most);
    socket_.auto_fragment(false);
    if (!protocol.empty()) socket_.set_option(speaking(std::move(protocol)));
    boost::system::error_code ec;
    co_await socket_.async_accept(request, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return fail(Errc::invalid, "the handshake failed: " + ec.message());
    co_return Result<void>();
  }

  asio::awaitable<Result<std::optional<Message>>> read() override {
    boost::system::error_code ec;
    beast::flat_buffer buffer;
    co_await socket_.async_read(buffer, asio::redirect_error(asio::use_awaitable, ec));
    if (ec == websocket::error::closed || ec == asio::error::eof) co_return std::nullopt;
    if (ec == websocket::error::message_too_big)
      co_return fail(Errc::exhausted, "the message is too large");
    if (ec) co_return fail(Errc::gone, "the client has gone");
    Message message{socket_.got_binary(), beast::buffers_to_string(buffer.data())};
    co_return std::optional<Message>(std::move(message));
  }

  asio::awaitable<Result<void>> write(Message message) override {
    boost::system::error_code ec;
    socket_.binary(message.binary);
    co_await socket_.async_write(asio::buffer(message.data),
                                 asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return fail(Errc::gone, "the client has gone");
    co_return Result<void>();
  }

  asio::awaitable<void> close(std::uint16_t code, std::string reason) override {
    if (!socket_.is_open()) co_return;
    if (reason.size() > 120) reason.resize(120);
    boost::system::error_code ec;
    websocket::close_reason why(code);
    why.reason.assign(reason.data(), reason.size());
    co_await socket_.async_close(why, asio::redirect_error(asio::use_awaitable, ec));
  }

  void abort() noexcept override {
    boost::system::error_code ignored;
    beast::get_lowest_layer(socket_).socket().close(ignored);
  }

 private:
  websocket::stream<Stream> socket_;
};

template <class Stream>
asio::awaitable<Result<std::unique_ptr<WebSocket>>> open(Stream stream, UpgradeRequest request,
                                                         std::string protocol, std::size_t most) {
  auto socket = std::make_unique<ServerWebSocket<Stream>>(std::move(stream));
  auto accepting = socket->accept(std::move(request), std::move(protocol), most);
  CO_TRY(co_await std::move(accepting));
  co_return std::unique_ptr<WebSocket>(std::move(socket));
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<WebSocket>>> open_web_socket(PlainStream stream,
                                                                    UpgradeRequest request,
                                                                    std::string protocol,
                                                                    std::size_t most) {
  return open(std::move(stream), std::move(request), std::move(protocol), most);
}

asio::awaitable<Result<std::unique_ptr<WebSocket>>> open_web_socket(TlsStream stream,
                                                                    UpgradeRequest request,
                                                                    std::string protocol,
                                                                    std::size_t most) {
  return open(std::move(stream), std::move(request), std::move(protocol), most);
}

}  // namespace asr
