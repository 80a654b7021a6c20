#include "net/dial.hpp"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "net/deadline.hpp"
#include "net/http_connection.hpp"

namespace asr {

namespace {

class PairStream final : public ByteStream {
 public:
  explicit PairStream(asio::local::stream_protocol::socket socket) : socket_(std::move(socket)) {}

  asio::awaitable<Result<std::size_t>> read_some(std::span<char> buffer) override {
    boost::system::error_code ec;
    std::size_t n = co_await socket_.async_read_some(asio::buffer(buffer.data(), buffer.size()),
                                                     asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::eof) co_return std::size_t{0};
    if (ec) co_return fail(Errc::gone, "the other side has gone");
    co_return n;
  }
  asio::awaitable<Result<void>> write(std::span<const char> data) override {
    boost::system::error_code ec;
    co_await asio::async_write(socket_, asio::buffer(data.data(), data.size()),
                               asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return fail(Errc::gone, "the other side has gone");
    co_return Result<void>();
  }
  void shut_down_write() noexcept override {
    boost::system::error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  }
  void close() noexcept override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::local::stream_protocol::socket socket_;
};

asio::awaitable<Result<std::shared_ptr<ByteStream>>> shake_hands(EgressDialer* dialer,
                                                                 asio::ip::tcp::socket socket,
                                                                 std::string host) {
  auto stream = std::make_unique<TlsStream>(PlainStream(std::move(socket)), dialer->tls());
  SSL* ssl = stream->native_handle();
  ::SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (SSL_set_tlsext_host_name(ssl, host.c_str()) != 1 || ::SSL_set1_host(ssl, host.c_str()) != 1)
    co_return fail(Errc::internal, "TLS cannot be set up");
  auto& lowest = beast::get_lowest_layer(*stream).socket();
  boost::system::error_code ec;
  bool late = false;
  {
    Deadline deadline(lowest, dialer->settings().connect_time);
    co_await stream->async_handshake(asio::ssl::stream_base::client,
                                     asio::redirect_error(asio::use_awaitable, ec));
    late = deadline.has_passed();
  }
  if (late) co_return fail(Errc::timeout, "the server's TLS took too long");
  if (::SSL_get_verify_result(ssl) != X509_V_OK)
    co_return fail(Errc::os, "the certificate of " + host + " cannot be trusted");
  if (ec) co_return fail(Errc::os, host + " does not speak TLS: " + ec.message());
  co_return std::shared_ptr<ByteStream>(make_byte_stream(std::move(*stream), ""));
}

}  // namespace

Result<ServerAddress> server_of_url(std::string_view url) {
  ServerAddress where;
  if (url.starts_with("https://")) {
    where.tls = true;
    url.remove_prefix(8);
  } else if (url.starts_with("http://")) {
    url.remove_prefix(7);
  } else {
    return fail(Errc::invalid, "a URL begins with http:// or https://");
  }
  std::string_view authority = url.substr(0, url.find_first_of("/?#"));
  auto server = parse_authority(authority, where.tls ? 443 : 80);
  if (!server) return fail(Errc::invalid, "the URL names no server: " + server.error().what);
  where.server = std::move(*server);
  where.authority = authority;
  return where;
}

asio::awaitable<Result<std::shared_ptr<ByteStream>>> dial_server(EgressDialer* dialer,
                                                                 ServerAddress where) {
  auto pending = std::make_shared<std::size_t>(0);
  auto looking = dialer->look_up(where.server.host, where.server.port, pending);
  auto addresses = CO_TRY(co_await std::move(looking));
  auto connecting = dialer->connect(std::move(addresses), nullptr);
  asio::ip::tcp::socket socket = CO_TRY(co_await std::move(connecting));
  if (!where.tls)
    co_return std::shared_ptr<ByteStream>(make_byte_stream(PlainStream(std::move(socket)), ""));
  auto shaking = shake_hands(dialer, std::move(socket), where.server.host.text);
  co_return co_await std::move(shaking);
}

Result<std::shared_ptr<ByteStream>> stream_of(asio::any_io_executor executor, UniqueFd socket) {
  asio::local::stream_protocol::socket taken(std::move(executor));
  boost::system::error_code ec;
  taken.assign(asio::local::stream_protocol(), socket.get(), ec);
  if (ec) return fail(Errc::os, "a pair of sockets cannot be used: " + ec.message());
  (void)socket.release();
  return std::make_shared<PairStream>(std::move(taken));
}

}  // namespace asr
