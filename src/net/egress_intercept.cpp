// CONNECT to a host with credentials: the proxy answers in its place, with a certificate of the
// session's own authority, and reads the requests inside.
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "net/client_hello.hpp"
#include "net/deadline.hpp"
#include "net/egress_state.hpp"

namespace asr {

namespace {

using tcp = asio::ip::tcp;

// The client's first words, if they are about the host it asked for.
asio::awaitable<Result<std::string>> read_hello(TakenSocket* client, HostName asked,
                                                std::chrono::seconds time) {
  using State = ClientHelloReader::State;
  ClientHelloReader reader;
  std::string held = std::move(client->already_read);
  State state = reader.feed(held);
  Deadline deadline(client->socket, time);
  std::string piece(4096, '\0');
  while (state == State::more) {
    boost::system::error_code ec;
    std::size_t n = co_await client->socket.async_read_some(
        asio::buffer(piece), asio::redirect_error(asio::use_awaitable, ec));
    if (deadline.has_passed()) co_return fail(Errc::timeout, "its first words took too long");
    if (ec) co_return fail(Errc::gone, "it ended before its first words were complete");
    held.append(piece, 0, n);
    state = reader.feed(std::string_view(piece).substr(0, n));
  }
  if (state != State::complete) co_return fail(Errc::denied, "not TLS, which credentials need");
  if (auto wrong = mismatch(reader.host(), reader.has_encrypted_hello(), asked))
    co_return fail(Errc::denied, *wrong);
  co_return held;
}

}  // namespace

asio::awaitable<void> run_interception(StatePtr state, HostAndPort target, TakenSocket client,
                                       AttemptPtr attempt) {
  std::shared_ptr<Connection> connection;
  auto closing = [&] {
    boost::system::error_code ignored;
    if (connection)
      connection->close();
    else
      client.socket.close(ignored);
  };
  Cutoff::Part part(attempt->cutoff(), closing);
  auto reading = read_hello(&client, target.host, state->limits.hello_time);
  auto hello = co_await std::move(reading);
  if (!hello) {
    attempt->deny(hello.error().what);
    co_return;
  }
  if (attempt->cutoff()->is_cut()) co_return;
  auto context = state->authority->server_context(target.host);
  if (!context) {
    attempt->deny(context.error().what);
    co_return;
  }
  auto serving = std::make_shared<Serving>();
  serving->options = connection_options(state->limits, TargetForm::origin);
  serving->hello = std::move(*hello);
  serving->handler = [state, target, attempt](Exchange* exchange) {
    attempt->allow();
    attempt->stay_silent();
    return serve_inside(state, target, exchange);
  };
  serving->refusal = [attempt](unsigned status, std::string what) {
    attempt->deny(what);
    return error_answer(status, Error(Errc::invalid, std::move(what)));
  };
  TlsStream stream(PlainStream(std::move(client.socket)), **context);
  connection = make_connection(std::move(stream), serving);
  auto serving_it = connection->serve();
  co_await std::move(serving_it);
  if (!attempt->is_silent())
    attempt->deny("no request came: does the program trust the session's certificate?");
}

}  // namespace asr
