// An E2B server as it is talked to: its control API, and the daemons and ports of its sandboxes.
// Knows keys and where they may go, how long to wait, what may be tried again, and when not to try
// at all.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "net/bell.hpp"
#include "net/egress_dialer.hpp"
#include "net/exchange.hpp"
#include "net/http_pool.hpp"
#include "net/json.hpp"
#include "provider/e2b/answers.hpp"
#include "provider/e2b/breaker.hpp"
#include "provider/e2b/envelopes.hpp"

namespace asr::e2b {

struct RemoteSettings {
  std::string api_key;
  std::string domain = "e2b.app";
  std::string api_url;      // empty: https://api.<domain>
  std::string sandbox_url;  // empty: as E2B's own clients find sandboxes, by their domain
};
// Errc::invalid for what cannot be a URL, or no key.
Result<void> check(const RemoteSettings& settings);

// What happens to a request whose answer does not come.
enum class Repeat {
  freely,     // it changes nothing that the first has not changed
  if_unsent,  // only when it surely never arrived
};

// A stream of messages from a sandbox. Dropping it ends it.
class MessageStream {
 public:
  MessageStream(std::shared_ptr<HttpTransfer> transfer) : transfer_(std::move(transfer)) {}
  // The next; nothing at its proper end. One that breaks off is Errc::provider.
  asio::awaitable<Result<std::optional<json::object>>> next();
  void cancel() { transfer_->cancel(); }
  // It ended because the connection did, not by a word of the other side's.
  bool is_broken() const noexcept { return broken_; }

 private:
  std::shared_ptr<HttpTransfer> transfer_;
  Envelopes envelopes_;
  bool broken_ = false;
};

// On one thread. The dialer and the log outlive it.
class Remote {
 public:
  Remote(asio::any_io_executor executor, RemoteSettings settings, EgressDialer* dialer,
         const Log& log);

  struct Answer {
    unsigned status = 0;
    json::value body;
    std::string next_page;
  };
  // The control API. Anything but 2xx is an error, but for 404 and 409, which the caller sees.
  asio::awaitable<Result<Answer>> control(std::string method, std::string path,
                                          std::optional<json::value> body, Repeat repeat,
                                          std::chrono::seconds within);

  // A call to a sandbox's daemon, as one of its users.
  asio::awaitable<Result<json::value>> call(Place place, std::string method, json::value body,
                                            std::string user, Repeat repeat,
                                            std::chrono::seconds within);
  asio::awaitable<Result<std::shared_ptr<MessageStream>>> stream(Place place, std::string method,
                                                                 json::value body,
                                                                 std::string user);
  // GET of the daemon, with a JSON answer.
  asio::awaitable<Result<json::value>> get(Place place, std::string path);
  // /files: what is written follows; what is read comes.
  Result<std::shared_ptr<HttpTransfer>> upload(const Place& place, const std::string& path,
                                               const std::string& user);
  asio::awaitable<Result<std::shared_ptr<HttpTransfer>>> download(Place place, std::string path,
                                                                  std::string user);
  // After a transfer: what its answer means.
  Result<void> judge(unsigned status, const std::string& body);

  // A connection to a server inside a sandbox, for one request of HTTP: the first head that goes
  // through is given what leads it there.
  asio::awaitable<Result<UniqueFd>> connect(Place place, std::uint16_t port);

  void stop() { pool_.stop(); }
  // Empty while it answers.
  std::string trouble() const;
  const asio::any_io_executor& executor() const noexcept { return executor_; }
  const Log& log() const noexcept { return log_; }

 private:
  struct Outcome {
    Result<PooledResponse> response;
    bool never_sent = false;
  };
  asio::awaitable<Result<PooledResponse>> send(PooledRequest request, Repeat repeat,
                                               std::chrono::seconds within);
  asio::awaitable<Outcome> send_once(PooledRequest request);
  // Its answer has begun.
  asio::awaitable<Result<std::shared_ptr<HttpTransfer>>> open(
      PooledRequest request, Repeat repeat, std::chrono::steady_clock::time_point until);
  PooledRequest to_sandbox(const Place& place, std::uint16_t port, const std::string& user) const;
  std::string sandbox_base(const Place& place, std::uint16_t port) const;
  Result<void> admit();
  void note(const Result<PooledResponse>& response);
  std::string without_secrets(std::string text) const;
  Error explained(const Error& error) const;
  static asio::awaitable<void> relay(std::shared_ptr<ByteStream> local, EgressDialer* dialer,
                                     std::string url, Headers headers,
                                     asio::any_io_executor executor);

  asio::any_io_executor executor_;
  RemoteSettings settings_;
  std::string api_;
  EgressDialer* dialer_;
  const Log& log_;
  Breaker breaker_;
  HttpPool pool_;
};

}  // namespace asr::e2b
