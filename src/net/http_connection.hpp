// One connection of a client: heads read and checked, bodies streamed, answers written. The only
// header that shows Beast; for the files of this folder alone.
#pragma once

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <functional>
#include <memory>

#include "net/exchange.hpp"
#include "net/http_server.hpp"

namespace asr {

namespace beast = boost::beast;

using PlainStream = beast::tcp_stream;
using TlsStream = asio::ssl::stream<beast::tcp_stream>;

// What all connections of a server share.
struct Serving {
  HttpServerOptions options;
  HttpServer::Handler handler;
  HttpServer::Refusal refusal;
  bool stopping = false;
  std::string hello;  // what a TLS client has said already
};

struct TakenSocket {
  asio::ip::tcp::socket socket;
  std::string already_read;
};

class Connection {
 public:
  virtual ~Connection() = default;
  virtual asio::awaitable<void> serve() = 0;  // Until it is over.
  virtual void close_if_idle() noexcept = 0;
  // Whether an answer is under way that has an end.
  virtual bool is_answering() const noexcept = 0;
  virtual void close() noexcept = 0;
  // While a request is handled: as Exchange::take_over(), for a connection without TLS.
  virtual TakenSocket take_socket() = 0;
};

std::shared_ptr<Connection> make_connection(PlainStream stream, std::shared_ptr<Serving> serving);
std::shared_ptr<Connection> make_connection(TlsStream stream, std::shared_ptr<Serving> serving);

std::unique_ptr<ByteStream> make_byte_stream(PlainStream stream, std::string already_read);
std::unique_ptr<ByteStream> make_byte_stream(TlsStream stream, std::string already_read);

}  // namespace asr
