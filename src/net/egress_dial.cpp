// From an allowed name to a connection: looked up outside, judged, and only then used.
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/scope_exit.hpp"
#include "net/deadline.hpp"
#include "net/egress_state.hpp"

namespace asr {

namespace {

constexpr std::chrono::seconds kKeepFound{10};
constexpr std::size_t kMostFound = 256;
constexpr std::chrono::milliseconds kTurnPause{50};

std::string in_words(const HostAndPort& target) {
  return in_url(target.host) + ":" + std::to_string(target.port);
}

// A bucket of names: who asks for many must wait, so that little can be told by names alone.
bool take_token(EgressState& state) {
  auto now = EgressState::Clock::now();
  double rate = state.limits.names_per_second;
  state.tokens += rate * std::chrono::duration<double>(now - state.refilled).count();
  state.tokens = std::min(state.tokens, 3 * rate);
  state.refilled = now;
  if (state.tokens < 1) return false;
  state.tokens -= 1;
  return true;
}

void remember(EgressState& state, const std::string& key, std::vector<DialAddress> addresses) {
  if (state.found.size() >= kMostFound) state.found.clear();
  state.found[key] = {std::move(addresses), EgressState::Clock::now()};
}

// A place among those who ask, for as long as a lookup may take.
asio::awaitable<Result<void>> wait_for_turn(StatePtr state) {
  auto until = EgressState::Clock::now() + state->dialer.settings().lookup_time;
  asio::steady_timer pause(state->executor);
  while (*state->pending >= state->limits.lookups || !take_token(*state)) {
    if (state->stopped) co_return fail(Errc::denied, "the session has ended");
    if (EgressState::Clock::now() >= until)
      co_return fail(Errc::exhausted, "too many names are looked up", "try again in a second");
    pause.expires_after(kTurnPause);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return Result<void>();
}

asio::awaitable<Result<std::vector<DialAddress>>> ask_dialer(StatePtr state, HostAndPort target) {
  auto waiting = wait_for_turn(state);
  CO_TRY(co_await std::move(waiting));
  auto looking = state->dialer.look_up(target.host, target.port, state->pending);
  co_return co_await std::move(looking);
}

asio::awaitable<Result<std::vector<DialAddress>>> look_up(StatePtr state, HostAndPort target) {
  if (target.host.is_address) co_return std::vector<DialAddress>{{target.host.text, target.port}};
  std::string key = in_words(target);
  auto known = state->found.find(key);
  if (known != state->found.end() && EgressState::Clock::now() - known->second.at < kKeepFound)
    co_return known->second.addresses;
  auto& asking = state->asking[key];
  if (asking) {
    auto shared = asking;
    boost::system::error_code ignored;
    co_await shared->over.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    if (!shared->answer) co_return fail(Errc::gone, "the session has ended");
    co_return *shared->answer;
  }
  auto own = asking = std::make_shared<EgressState::Asking>(state->executor);
  ScopeExit leave([&] {
    state->asking.erase(key);
    own->over.cancel();
  });
  auto looking = ask_dialer(state, target);
  own->answer = co_await std::move(looking);
  if (*own->answer && !state->stopped) remember(*state, key, **own->answer);
  co_return *own->answer;
}

// Every one of them, or the name is refused as a whole: it could be tried again until it fits.
Result<bool> leads_inside(const HostAndPort& target, const std::vector<DialAddress>& addresses,
                          Reach reach) {
  bool inside = false;
  for (const DialAddress& each : addresses) {
    if (is_public_address(each.address) && !is_own_address(each.address)) continue;
    inside = true;
    if (reach == Reach::public_only)
      return fail(Errc::denied, target.host.text + " leads to an address that is not public",
                  "an operator can allow it with \"private\": true");
  }
  return inside;
}

}  // namespace

Result<RulePtr> admit(const EgressState& state, const HostAndPort& target) {
  if (state.stopped) return fail(Errc::denied, "the session has ended");
  if (state.is_used_up())
    return fail(Errc::exhausted, "the session has used up its bytes",
                "\"bytes\" of its network says how many it has");
  if (RulePtr rule = state.policy->match(target.host, target.port)) return rule;
  return fail(Errc::denied, in_words(target) + " is not on the session's list of hosts",
              "allow it when the session is made: \"network\": {\"mode\": \"allow\", \"allow\": "
              "[{\"host\": \"" +
                  target.host.text + "\", \"ports\": [" + std::to_string(target.port) + "]}]}");
}

asio::awaitable<Result<asio::ip::tcp::socket>> dial(StatePtr state, HostAndPort target,
                                                    AttemptPtr attempt) {
  auto looking = look_up(state, target);
  auto addresses = CO_TRY(co_await std::move(looking));
  if (attempt->cutoff()->is_cut()) co_return fail(Errc::denied, attempt->cutoff()->reason());
  // The list may have changed while the name was looked up. From here on replace() sees to it.
  RulePtr rule = CO_TRY(admit(*state, target));
  attempt->set_private(CO_TRY(leads_inside(target, addresses, rule->reach)));
  auto connecting = state->dialer.connect(std::move(addresses), attempt->cutoff());
  co_return co_await std::move(connecting);
}

asio::awaitable<Result<std::shared_ptr<TlsStream>>> dial_tls(StatePtr state, HostAndPort target,
                                                             AttemptPtr attempt) {
  auto dialing = dial(state, target, attempt);
  asio::ip::tcp::socket socket = CO_TRY(co_await std::move(dialing));
  auto stream = std::make_shared<TlsStream>(PlainStream(std::move(socket)), state->dialer.tls());
  SSL* ssl = stream->native_handle();
  ::SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (SSL_set_tlsext_host_name(ssl, target.host.text.c_str()) != 1 ||
      ::SSL_set1_host(ssl, target.host.text.c_str()) != 1)
    co_return fail(Errc::internal, "TLS cannot be set up");
  auto& lowest = beast::get_lowest_layer(*stream).socket();
  Cutoff::Part part(attempt->cutoff(), [&lowest] {
    boost::system::error_code ignored;
    lowest.close(ignored);
  });
  boost::system::error_code ec;
  Deadline deadline(lowest, state->dialer.settings().connect_time);
  co_await stream->async_handshake(asio::ssl::stream_base::client,
                                   asio::redirect_error(asio::use_awaitable, ec));
  if (deadline.has_passed()) co_return fail(Errc::timeout, "the server's TLS took too long");
  if (::SSL_get_verify_result(ssl) != X509_V_OK)
    co_return fail(Errc::os, "the certificate of " + target.host.text + " cannot be trusted: " +
                                 ::X509_verify_cert_error_string(::SSL_get_verify_result(ssl)));
  if (ec) co_return fail(Errc::os, target.host.text + " does not speak TLS: " + ec.message());
  co_return stream;
}

}  // namespace asr
