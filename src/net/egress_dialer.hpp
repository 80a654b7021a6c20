// The way out: names are looked up, connections made, servers' certificates checked. One for all
// sessions.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/cutoff.hpp"
#include "net/host_name.hpp"

namespace asr {

namespace asio = boost::asio;

// Where a host is to be found.
struct DialAddress {
  std::string address;
  std::uint16_t port = 0;
};

// From a name to its addresses. Blocks; called on several threads at once. Whether the addresses
// may be used is not its business.
using EgressResolver =
    std::function<Result<std::vector<DialAddress>>(const std::string& host, std::uint16_t port)>;

struct DialerSettings {
  EgressResolver resolver;  // empty: as this machine resolves names
  std::string trust;        // a PEM file of authorities, beside those of this machine
  std::size_t threads = 8;  // that may wait for a name server
  std::chrono::milliseconds lookup_time{10000};
  std::chrono::milliseconds connect_time{10000};  // per address
  std::size_t most_addresses = 4;                 // tried one after the other
};

// Must go before the executor its users run on, and after they have stopped.
class EgressDialer {
 public:
  static Result<std::unique_ptr<EgressDialer>> make(DialerSettings settings);
  ~EgressDialer();
  EgressDialer(const EgressDialer&) = delete;
  EgressDialer& operator=(const EgressDialer&) = delete;

  // An address is itself. `pending` counts lookups that have not come back, whoever still waits.
  asio::awaitable<Result<std::vector<DialAddress>>> look_up(HostName host, std::uint16_t port,
                                                            std::shared_ptr<std::size_t> pending);
  // The first of the addresses that answers.
  asio::awaitable<Result<asio::ip::tcp::socket>> connect(std::vector<DialAddress> addresses,
                                                         std::shared_ptr<Cutoff> cutoff);

  asio::ssl::context& tls() noexcept { return tls_; }  // for clients; certificates are checked
  const DialerSettings& settings() const noexcept { return settings_; }

 private:
  EgressDialer(DialerSettings settings, asio::ssl::context tls);

  DialerSettings settings_;
  asio::ssl::context tls_;
  asio::thread_pool lookups_;
};

}  // namespace asr
