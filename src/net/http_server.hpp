// Accepts connections and hands every request to one handler.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "net/exchange.hpp"

namespace asr {

struct ListenAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
};
// "127.0.0.1:8000", "[::1]:8000", ":8000", "8000".
Result<ListenAddress> parse_listen(std::string_view text);
bool is_loopback(const ListenAddress& address);

struct TlsFiles {
  std::string certificate;  // paths of PEM files
  std::string key;
};

struct HttpServerOptions {
  ListenAddress listen;
  std::optional<TlsFiles> tls;
  std::size_t most_connections = 10000;
  std::size_t most_connections_per_peer = 1024;  // of one address; loopback is not counted
  std::size_t most_head_bytes = 32 * 1024;
  std::size_t most_head_fields = 100;
  TargetForm targets = TargetForm::origin;
  std::chrono::seconds head_time{10};  // from the first byte of a head to its last
  std::chrono::seconds idle_time{75};  // between requests
  std::chrono::seconds body_time{30};  // without any progress
};

class HttpServer {
 public:
  // Must answer; an exchange that was not answered becomes a 500.
  using Handler = std::function<asio::awaitable<void>(Exchange*)>;
  // Answer to a head that is no request: status and words.
  using Refusal = std::function<Response(unsigned status, std::string what)>;

  static Result<std::unique_ptr<HttpServer>> listen(asio::any_io_executor executor,
                                                    HttpServerOptions options, Handler handler,
                                                    Refusal refusal);
  virtual ~HttpServer() = default;  // Closes every connection.

  virtual std::uint16_t port() const noexcept = 0;
  virtual std::size_t connections() const noexcept = 0;
  virtual std::uint64_t accepted() const noexcept = 0;
  // Takes no more connections and no more requests; returns when those under way are answered, or
  // after `patience`.
  virtual asio::awaitable<void> drain(std::chrono::milliseconds patience) = 0;
};

}  // namespace asr
