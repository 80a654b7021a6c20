#include "net/http_server.hpp"

#include <openssl/ssl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <map>

#include "net/http_connection.hpp"

namespace asr {

namespace {

using tcp = asio::ip::tcp;

Result<asio::ssl::context> tls_context(const TlsFiles& files) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  boost::system::error_code ec;
  context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                          asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                          asio::ssl::context::no_tlsv1_1 | asio::ssl::context::single_dh_use,
                      ec);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION);
  context.use_certificate_chain_file(files.certificate, ec);
  if (ec)
    return fail(Errc::invalid,
                "cannot use the certificate " + files.certificate + ": " + ec.message(),
                "a PEM file, the server's own certificate first");
  context.use_private_key_file(files.key, asio::ssl::context::pem, ec);
  if (ec)
    return fail(Errc::invalid, "cannot use the key " + files.key + ": " + ec.message(),
                "a PEM file with the key of that certificate, without a password");
  return context;
}

// Everything runs on the executor it was given, which must run one thing at a time.
class BeastServer final : public HttpServer {
 public:
  BeastServer(asio::any_io_executor executor, tcp::acceptor acceptor,
              std::optional<asio::ssl::context> tls, std::shared_ptr<Serving> serving)
      : executor_(std::move(executor)),
        state_(std::make_shared<State>(
            State{std::move(acceptor), std::move(tls), std::move(serving), {}, {}, 0, 0})) {}

  ~BeastServer() override {
    stop_accepting();
    for (auto& [number, connection] : state_->connections) connection->close();
  }

  void start() { asio::co_spawn(executor_, accept(state_), asio::detached); }

  std::uint16_t port() const noexcept override {
    boost::system::error_code ec;
    return state_->acceptor.local_endpoint(ec).port();
  }
  std::size_t connections() const noexcept override { return state_->connections.size(); }
  std::uint64_t accepted() const noexcept override { return state_->accepted; }

  asio::awaitable<void> drain(std::chrono::milliseconds patience) override {
    stop_accepting();
    auto until = std::chrono::steady_clock::now() + patience;
    for (bool answering = true; answering && std::chrono::steady_clock::now() < until;) {
      answering = false;
      auto connections = state_->connections;
      for (auto& [number, connection] : connections) {
        connection->close_if_idle();
        answering = answering || connection->is_answering();
      }
      if (!answering) break;
      asio::steady_timer pause(executor_, std::chrono::milliseconds(10));
      boost::system::error_code ec;
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    }
  }

 private:
  struct State {
    tcp::acceptor acceptor;
    std::optional<asio::ssl::context> tls;
    std::shared_ptr<Serving> serving;
    std::map<std::uint64_t, std::shared_ptr<Connection>> connections;
    std::map<std::string, std::size_t> per_peer;
    std::uint64_t last_number;
    std::uint64_t accepted;
  };

  void stop_accepting() {
    boost::system::error_code ignored;
    state_->acceptor.close(ignored);
    state_->serving->stopping = true;
  }

  static asio::awaitable<void> accept(std::shared_ptr<State> state) {
    auto executor = co_await asio::this_coro::executor;
    for (;;) {
      boost::system::error_code ec;
      tcp::socket socket =
          co_await state->acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
      if (!state->acceptor.is_open()) co_return;
      if (ec) {
        // Out of descriptors: whoever waits in the queue waits a little longer.
        asio::steady_timer pause(executor, std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
        continue;
      }
      admit(state, executor, std::move(socket));
    }
  }

  // Over the limits a connection is closed at once: an answer would cost what the limit saves.
  static void admit(const std::shared_ptr<State>& state, const asio::any_io_executor& executor,
                    tcp::socket socket) {
    const HttpServerOptions& options = state->serving->options;
    boost::system::error_code ec;
    auto address = socket.remote_endpoint(ec).address();
    if (ec || state->connections.size() >= options.most_connections) return;
    std::string peer = address.is_loopback() ? "" : address.to_string();
    if (!peer.empty() && state->per_peer[peer] >= options.most_connections_per_peer) return;
    socket.set_option(tcp::no_delay(true), ec);
    std::shared_ptr<Connection> connection;
    if (state->tls)
      connection = make_connection(TlsStream(std::move(socket), *state->tls), state->serving);
    else
      connection = make_connection(PlainStream(std::move(socket)), state->serving);
    std::uint64_t number = ++state->last_number;
    ++state->accepted;
    state->connections.emplace(number, connection);
    if (!peer.empty()) ++state->per_peer[peer];
    asio::co_spawn(executor, run(std::move(connection)),
                   [state, number, peer](const std::exception_ptr&) {
                     state->connections.erase(number);
                     if (!peer.empty() && --state->per_peer[peer] == 0) state->per_peer.erase(peer);
                   });
  }

  static asio::awaitable<void> run(std::shared_ptr<Connection> connection) {
    co_await connection->serve();
  }

  asio::any_io_executor executor_;
  std::shared_ptr<State> state_;
};

}  // namespace

Result<ListenAddress> parse_listen(std::string_view text) {
  ListenAddress address;
  std::string_view port = text;
  std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    address.host = host.empty() ? "0.0.0.0" : std::string(host);
    port = text.substr(colon + 1);
  }
  unsigned number = 0;
  auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (ec != std::errc() || end != port.data() + port.size() || number > 65535)
    return fail(Errc::invalid, "'" + std::string(text) + "' is no address to listen on",
                "write it as 127.0.0.1:8000 or [::1]:8000");
  address.port = static_cast<std::uint16_t>(number);
  boost::system::error_code bad;
  (void)asio::ip::make_address(address.host == "localhost" ? "127.0.0.1" : address.host, bad);
  if (bad)
    return fail(Errc::invalid, "'" + address.host + "' is no address of a network interface",
                "write a number such as 127.0.0.1 or 0.0.0.0, or localhost");
  if (address.host == "localhost") address.host = "127.0.0.1";
  return address;
}

bool is_loopback(const ListenAddress& address) {
  boost::system::error_code ec;
  auto parsed = asio::ip::make_address(address.host, ec);
  return !ec && parsed.is_loopback();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(asio::any_io_executor executor,
                                                       HttpServerOptions options, Handler handler,
                                                       Refusal refusal) {
  std::optional<asio::ssl::context> tls;
  if (options.tls) tls = TRY(tls_context(*options.tls));
  boost::system::error_code ec;
  auto where = tcp::endpoint(asio::ip::make_address(options.listen.host, ec), options.listen.port);
  if (ec) return fail(Errc::invalid, "no such address: " + options.listen.host);
  tcp::acceptor acceptor(executor);
  acceptor.open(where.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(where, ec);
  if (!ec) acceptor.listen(4096, ec);
  if (ec)
    return fail(ec == asio::error::address_in_use ? Errc::conflict : Errc::os,
                "cannot listen on " + options.listen.host + ":" +
                    std::to_string(options.listen.port) + ": " + ec.message(),
                ec == asio::error::address_in_use
                    ? "another program listens there; choose another port with --listen"
                    : "");
  auto serving = std::make_shared<Serving>();
  serving->options = std::move(options);
  serving->handler = std::move(handler);
  serving->refusal = std::move(refusal);
  auto server = std::make_unique<BeastServer>(std::move(executor), std::move(acceptor),
                                              std::move(tls), std::move(serving));
  server->start();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace asr
