// CONNECT to a host without credentials: bytes both ways, once the client's first words are about
// the host it asked for.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "net/client_hello.hpp"
#include "net/egress_state.hpp"

namespace asr {

namespace {

using tcp = asio::ip::tcp;
using Clock = EgressState::Clock;

constexpr std::size_t kBlock = 32 * 1024;
constexpr std::uint16_t kTlsOnly = 443;

struct Tunnel {
  Tunnel(StatePtr of, HostAndPort to, RulePtr by, TakenSocket from, tcp::socket other,
         AttemptPtr as)
      : state(std::move(of)),
        target(std::move(to)),
        rule(std::move(by)),
        client(std::move(from.socket)),
        early(std::move(from.already_read)),
        upstream(std::move(other)),
        attempt(std::move(as)),
        bell(state->executor) {}

  StatePtr state;
  HostAndPort target;
  RulePtr rule;
  tcp::socket client;
  std::string early;  // came with the request
  tcp::socket upstream;
  AttemptPtr attempt;
  asio::steady_timer bell;  // cancelled when a direction ends
  int directions = 2;
  bool inspecting = false;  // the first words have begun and are not complete
  Clock::time_point inspecting_since;
  Clock::time_point moved = Clock::now();

  void close() {
    boost::system::error_code ignored;
    client.close(ignored);
    upstream.close(ignored);
  }
  // Those who watch the time look again.
  void inspect_now() {
    if (std::exchange(inspecting, true)) return;
    inspecting_since = Clock::now();
    bell.cancel();
  }
  bool pass(Direction direction, std::size_t bytes) {
    moved = Clock::now();
    return attempt->count(direction, bytes);
  }
};
using TunnelPtr = std::shared_ptr<Tunnel>;

// What has come, in a buffer that exists only when something has: idle tunnels are cheap.
asio::awaitable<std::string> read_ready(TunnelPtr tunnel, tcp::socket* from) {
  boost::system::error_code ec;
  for (;;) {
    co_await from->async_wait(tcp::socket::wait_read,
                              asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return std::string();
    std::string block(kBlock, '\0');
    std::size_t n = from->read_some(asio::buffer(block), ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) continue;
    block.resize(ec ? 0 : n);
    co_return block;
  }
}

asio::awaitable<bool> write_all(TunnelPtr tunnel, tcp::socket* to, std::string data) {
  boost::system::error_code ec;
  co_await asio::async_write(*to, asio::buffer(data),
                             asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec;
}

void refuse(Tunnel& tunnel, std::string reason) {
  tunnel.attempt->deny(std::move(reason));
  tunnel.close();
}

// Nothing goes up before it is known to whom. Plain protocols are for ports other than 443.
asio::awaitable<bool> inspect(TunnelPtr tunnel) {
  using State = ClientHelloReader::State;
  ClientHelloReader reader;
  std::string held = std::exchange(tunnel->early, {});
  bool tls_only = tunnel->target.port == kTlsOnly;
  if (tls_only || !held.empty()) tunnel->inspect_now();
  State state = reader.feed(held);
  while (state == State::more) {
    auto reading = read_ready(tunnel, &tunnel->client);
    std::string piece = co_await std::move(reading);
    if (piece.empty()) {
      if (tunnel->inspecting) refuse(*tunnel, "it ended before its first words were complete");
      co_return held.empty();
    }
    tunnel->inspect_now();
    held += piece;
    state = reader.feed(piece);
  }
  std::optional<std::string> wrong;
  if (state == State::malformed) wrong = "malformed TLS";
  if (state == State::not_tls && tls_only) wrong = "not TLS, which port 443 is for";
  if (state == State::complete)
    wrong = mismatch(reader.host(), reader.has_encrypted_hello(), tunnel->target.host);
  if (wrong) {
    refuse(*tunnel, *wrong);
    co_return false;
  }
  tunnel->inspecting = false;
  if (!tunnel->pass(Direction::up, held.size())) co_return false;
  auto writing = write_all(tunnel, &tunnel->upstream, std::move(held));
  co_return co_await std::move(writing);
}

asio::awaitable<void> copy(TunnelPtr tunnel, Direction direction) {
  bool up = direction == Direction::up;
  tcp::socket* from = up ? &tunnel->client : &tunnel->upstream;
  tcp::socket* to = up ? &tunnel->upstream : &tunnel->client;
  bool open = true;
  if (up && !is_catch_all(*tunnel->rule)) {
    auto inspecting = inspect(tunnel);
    open = co_await std::move(inspecting);
  } else if (up && !tunnel->early.empty()) {
    open = tunnel->pass(direction, tunnel->early.size());
    auto writing = write_all(tunnel, to, std::exchange(tunnel->early, {}));
    open = co_await std::move(writing) && open;
  }
  while (open) {
    auto reading = read_ready(tunnel, from);
    std::string block = co_await std::move(reading);
    if (block.empty() || !tunnel->pass(direction, block.size())) break;
    auto writing = write_all(tunnel, to, std::move(block));
    open = co_await std::move(writing);
  }
  boost::system::error_code ignored;
  to->shutdown(tcp::socket::shutdown_send, ignored);
}

Clock::time_point deadline_of(const Tunnel& tunnel) {
  const EgressLimits& limits = tunnel.state->limits;
  // Progress byte by byte does not make the first words take longer.
  if (tunnel.inspecting) return tunnel.inspecting_since + limits.hello_time;
  return tunnel.moved + (tunnel.directions == 2 ? limits.idle_time : limits.half_time);
}

}  // namespace

std::optional<std::string> mismatch(const std::string& server_name, bool encrypted,
                                    const HostName& asked) {
  // TLS has no way to name an address.
  if (server_name.empty() && asked.is_address && !encrypted) return std::nullopt;
  if (server_name.empty()) return "its TLS names no host";
  auto named = canonical_host(server_name);
  if (named && *named == asked) return std::nullopt;
  return "its TLS names another host" + (named ? ": " + named->text : std::string());
}

asio::awaitable<void> run_tunnel(StatePtr state, HostAndPort target, RulePtr rule,
                                 TakenSocket client, tcp::socket upstream, AttemptPtr attempt) {
  auto tunnel = std::make_shared<Tunnel>(state, std::move(target), std::move(rule),
                                         std::move(client), std::move(upstream), attempt);
  boost::system::error_code ec;
  tunnel->client.non_blocking(true, ec);
  tunnel->upstream.non_blocking(true, ec);
  Cutoff::Part part(attempt->cutoff(), [tunnel] { tunnel->close(); });
  attempt->allow();
  auto over = [tunnel](const std::exception_ptr&) {
    --tunnel->directions;
    tunnel->moved = Clock::now();
    tunnel->bell.cancel();
  };
  asio::co_spawn(state->executor, copy(tunnel, Direction::up), over);
  asio::co_spawn(state->executor, copy(tunnel, Direction::down), over);
  while (tunnel->directions > 0) {
    auto deadline = deadline_of(*tunnel);
    if (Clock::now() >= deadline && tunnel->client.is_open()) {
      if (tunnel->inspecting)
        attempt->deny("its first words took too long");
      else
        attempt->ended_by("nothing moved any more");
      tunnel->close();
    }
    // What moves meanwhile moves the deadline, which is then looked at again.
    tunnel->bell.expires_at(tunnel->client.is_open() ? deadline : Clock::time_point::max());
    co_await tunnel->bell.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

}  // namespace asr
