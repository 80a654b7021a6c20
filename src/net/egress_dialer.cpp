#include "net/egress_dialer.hpp"

#include <openssl/ssl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "net/address_policy.hpp"
#include "net/deadline.hpp"

namespace asr {

namespace {

using tcp = asio::ip::tcp;

Result<std::vector<DialAddress>> ask_system(const std::string& host, std::uint16_t port) {
  std::vector<DialAddress> out;
  for (std::string& address : TRY(resolve_allowed(host, port, Reach::anywhere)))
    out.push_back({std::move(address), port});
  return out;
}

// What the thread that asks and the coroutine that waits share.
struct Lookup {
  explicit Lookup(const asio::any_io_executor& executor) : bell(executor) {}
  asio::steady_timer bell;
  bool done = false;
  Result<std::vector<DialAddress>> answer;
};

}  // namespace

EgressDialer::EgressDialer(DialerSettings settings, asio::ssl::context tls)
    : settings_(std::move(settings)), tls_(std::move(tls)), lookups_(settings_.threads) {
  if (!settings_.resolver) settings_.resolver = ask_system;
}

EgressDialer::~EgressDialer() {
  lookups_.stop();
  lookups_.join();
}

Result<std::unique_ptr<EgressDialer>> EgressDialer::make(DialerSettings settings) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  boost::system::error_code ec;
  tls.set_default_verify_paths(ec);
  if (!settings.trust.empty()) {
    tls.load_verify_file(settings.trust, ec);
    if (ec)
      return fail(Errc::invalid, "cannot use the certificates in " + settings.trust,
                  "a PEM file of authorities to trust");
  }
  tls.set_verify_mode(asio::ssl::verify_peer);
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  static constexpr unsigned char kSpoken[] = "\x08http/1.1";
  ::SSL_CTX_set_alpn_protos(tls.native_handle(), kSpoken, sizeof kSpoken - 1);
  return std::unique_ptr<EgressDialer>(new EgressDialer(std::move(settings), std::move(tls)));
}

asio::awaitable<Result<std::vector<DialAddress>>> EgressDialer::look_up(
    HostName host, std::uint16_t port, std::shared_ptr<std::size_t> pending) {
  if (host.is_address) co_return std::vector<DialAddress>{{host.text, port}};
  asio::any_io_executor executor = co_await asio::this_coro::executor;
  auto lookup = std::make_shared<Lookup>(executor);
  lookup->bell.expires_after(settings_.lookup_time);
  ++*pending;
  // Everything shared goes back with the answer, so that the other thread drops nothing of ours.
  auto ask = [resolver = settings_.resolver, name = host.text, port, executor, lookup,
              pending]() mutable {
    auto found = resolver(name, port);
    auto tell = [lookup = std::move(lookup), pending = std::move(pending),
                 found = std::move(found)]() mutable {
      --*pending;
      lookup->answer = std::move(found);
      lookup->done = true;
      lookup->bell.cancel();
    };
    asio::post(executor, std::move(tell));
  };
  asio::post(lookups_, std::move(ask));
  boost::system::error_code ignored;
  co_await lookup->bell.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (!lookup->done) co_return fail(Errc::timeout, "no name server answered in time");
  if (lookup->answer && lookup->answer->empty())
    co_return fail(Errc::not_found, "cannot find " + host.text);
  co_return std::move(lookup->answer);
}

asio::awaitable<Result<tcp::socket>> EgressDialer::connect(std::vector<DialAddress> addresses,
                                                           std::shared_ptr<Cutoff> cutoff) {
  auto executor = co_await asio::this_coro::executor;
  Error last(Errc::os, "no server answers there");
  if (addresses.size() > settings_.most_addresses) addresses.resize(settings_.most_addresses);
  auto limit = settings_.connect_time;
  for (const DialAddress& each : addresses) {
    boost::system::error_code ec;
    auto address = asio::ip::make_address(each.address, ec);
    if (ec) continue;
    tcp::socket socket(executor);
    Cutoff::Part part(cutoff, [&socket] {
      boost::system::error_code ignored;
      socket.close(ignored);
    });
    socket.open(address.is_v6() ? tcp::v6() : tcp::v4(), ec);
    bool too_late = false;
    if (!ec) {
      Deadline deadline(socket, limit);
      tcp::endpoint where(address, each.port);
      co_await socket.async_connect(where, asio::redirect_error(asio::use_awaitable, ec));
      too_late = deadline.has_passed();
    }
    if (cutoff && cutoff->is_cut()) co_return fail(Errc::gone, cutoff->reason());
    if (!ec) {
      socket.set_option(tcp::no_delay(true), ec);
      socket.set_option(asio::socket_base::keep_alive(true), ec);
      co_return std::move(socket);
    }
    last = too_late ? Error(Errc::timeout, "no server answered there in time")
                    : Error(Errc::os, "no server answers there: " + ec.message());
  }
  co_return fail(std::move(last));
}

}  // namespace asr
