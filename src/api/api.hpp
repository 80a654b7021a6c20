// The API as a whole: every request comes in here, is traced, admitted, routed, answered, counted.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/e2b/options.hpp"
#include "api/jwt.hpp"
#include "api/key_ring.hpp"
#include "api/metrics.hpp"
#include "api/rate_limit.hpp"
#include "api/route.hpp"
#include "base/log.hpp"
#include "net/http_server.hpp"
#include "session/sessions.hpp"

namespace asr {

// Folders of this machine that changes of sessions may be taken into.
struct ApplyOptions {
  std::vector<std::string> folders;  // absolute
  bool users = false;                // Not only operators may.
};

struct ApiOptions {
  bool no_auth = false;  // Everybody is admin; only for a server that listens on loopback.
  Rate per_key{2000, 4000};
  Rate per_peer{4000, 8000};
  Rate wrong_keys{5, 50};            // per address
  std::shared_ptr<JwtVerifier> jwt;  // none: keys only
  std::size_t most_json = 4 << 20;
  // Names by which this server may be called beside addresses and localhost; empty: any, unless
  // only_loopback.
  std::vector<std::string> hosts;
  std::string preview_domain = "localhost";  // previews are at <port>-<session>.<this>
  bool only_loopback = true;  // refuse other names: a page elsewhere could have rebound its own
  std::vector<std::string> origins;  // web pages that may call from a browser
  ApplyOptions apply;
  E2bOptions e2b;
};

// What handlers work with. All of it outlives the API.
struct ApiParts {
  Sessions& sessions;
  Store& store;
  KeyRing& keys;
  const Log& log;
  asio::any_io_executor executor;
  class Webhooks* webhooks = nullptr;
  class Batches* batches = nullptr;
  class Templates* templates = nullptr;
};

// Whether a stream that was opened some time ago may go on: the key, the share, the session.
asio::awaitable<bool> may_go_on(ApiParts parts, Caller caller, std::shared_ptr<Session> session);
inline constexpr std::chrono::seconds kLookAgain{3};

class Api {
 public:
  Api(const ApiParts& parts, ApiOptions options);
  ~Api();

  asio::awaitable<void> handle(Exchange* exchange);
  Response refuse(unsigned status, std::string what);

  const json::object& document() const noexcept { return document_; }
  void set_ready(bool ready) noexcept { ready_ = ready; }
  bool is_ready() const noexcept { return ready_; }
  Metrics& metrics() noexcept { return metrics_; }

 private:
  struct Refused {
    unsigned status;
    Error error;
    Headers headers;
    Dialect dialect = Dialect::own;
  };

  std::optional<Refused> admit(const CallPtr& call, const Router::Match& match);
  asio::awaitable<Result<Reply>> answer(CallPtr call, const Route* route);
  asio::awaitable<Result<Reply>> answer_safely(CallPtr call, const Route* route);
  asio::awaitable<void> fail_with(CallPtr call, Refused refused);
  Result<void> check_origin(const RequestHead& head) const;
  Result<Caller> authenticate(const RequestHead& head);
  asio::awaitable<Result<void>> read_json(CallPtr call, const Route* route);
  // Long bodies are read one at a time of each caller, and few in all; waits for its turn.
  class LongBody;
  asio::awaitable<Result<std::unique_ptr<LongBody>>> admit_long_body(CallPtr call,
                                                                     const Route* route);
  asio::awaitable<void> send(CallPtr call, Reply reply);
  void greet_origin(Exchange* exchange) const;
  bool is_preflight(const RequestHead& head) const;
  asio::awaitable<void> answer_preflight(Exchange* exchange);
  Router::Match find_route(const RequestHead& head) const;
  asio::awaitable<void> serve_data(Exchange* exchange, struct DataTarget target);
  asio::awaitable<void> preview(Exchange* exchange, struct PreviewTarget target);

  ApiParts parts_;
  ApiOptions options_;
  Router router_;
  Metrics metrics_;
  RateLimiter by_key_;
  RateLimiter by_peer_;
  RateLimiter by_wrong_key_;
  std::unique_ptr<class DataPlane> data_plane_;
  json::object document_;
  bool ready_ = false;
  std::set<std::string> long_bodies_;  // by caller
  Bell long_body_read_;
  asio::thread_pool parsing_{1};  // of long bodies: others do not wait for it
};

// The operations, one function per resource.
std::vector<Route> system_routes(const ApiParts& parts, Api* api);
std::vector<Route> session_routes(const ApiParts& parts);
std::vector<Route> command_routes(const ApiParts& parts);
std::vector<Route> interpreter_routes(const ApiParts& parts);
std::vector<Route> file_routes(const ApiParts& parts);
std::vector<Route> branch_routes(const ApiParts& parts);
std::vector<Route> history_routes(const ApiParts& parts);
std::vector<Route> change_routes(const ApiParts& parts, const ApplyOptions& options);
std::vector<Route> stream_routes(const ApiParts& parts);
std::vector<Route> event_routes(const ApiParts& parts);
std::vector<Route> key_routes(const ApiParts& parts);
std::vector<Route> volume_routes(const ApiParts& parts);
std::vector<Route> compat_routes(const ApiParts& parts);
std::vector<Route> webhook_routes(Webhooks* webhooks);
std::vector<Route> batch_routes(const ApiParts& parts);

}  // namespace asr
