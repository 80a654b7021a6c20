// What the parts of the egress proxy share. For the files of this folder alone.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "net/authority.hpp"
#include "net/cutoff.hpp"
#include "net/egress_proxy.hpp"
#include "net/http_connection.hpp"
#include "net/http_proxy.hpp"

namespace asr {

class OpenAttempt;

// Coroutines hold it; nothing of it outlives stop() but itself.
struct EgressState {
  using Clock = std::chrono::steady_clock;

  EgressState(asio::any_io_executor on, EgressDialer& way_out, EgressLimits bounds)
      : executor(on),
        dialer(way_out),
        limits(bounds),
        room(on),
        tokens(3 * bounds.names_per_second) {}

  asio::any_io_executor executor;
  EgressDialer& dialer;
  EgressLimits limits;
  std::shared_ptr<const EgressPolicy> policy;
  std::unique_ptr<Authority> authority;
  EgressProxy::Report report;
  EgressCounts counts;
  std::uint64_t used = 0;  // bytes, for the quota
  bool stopped = false;

  std::uint64_t last_number = 0;
  std::map<std::uint64_t, std::shared_ptr<Connection>> connections;
  std::set<OpenAttempt*> attempts;
  asio::steady_timer room;  // cancelled when a connection ends

  // Lookups.
  struct Found {
    std::vector<DialAddress> addresses;
    Clock::time_point at;
  };
  std::map<std::string, Found> found;
  struct Asking {  // one lookup, however many wait for it
    explicit Asking(const asio::any_io_executor& on)
        : over(on, asio::steady_timer::time_point::max()) {}
    asio::steady_timer over;
    std::optional<Result<std::vector<DialAddress>>> answer;
  };
  std::map<std::string, std::shared_ptr<Asking>> asking;
  std::shared_ptr<std::size_t> pending = std::make_shared<std::size_t>(0);
  double tokens;
  Clock::time_point refilled = Clock::now();

  bool is_used_up() const noexcept {
    return policy->most_bytes() != 0 && used >= policy->most_bytes();
  }
};

// One attempt, from its first word to its report. Whoever holds it goes on; cutting it ends that.
class OpenAttempt {
 public:
  OpenAttempt(std::shared_ptr<EgressState> state, std::string method);
  ~OpenAttempt();
  OpenAttempt(const OpenAttempt&) = delete;
  OpenAttempt& operator=(const OpenAttempt&) = delete;

  void set_target(const HostAndPort& target);
  void set_path(std::string_view target);  // without its query, cut where it is long
  void allow() { attempt_.allowed = true; }
  void deny(std::string reason);      // The first reason counts.
  void ended_by(std::string reason);  // allowed, but not over by itself
  // By whose doing it went wrong: a policy's, which denies it, or the world's.
  void fail_with(const Error& error);
  void stay_silent() { silent_ = true; }  // others speak for it
  bool is_silent() const noexcept { return silent_; }
  // Where it leads, to be judged anew when the policy changes.
  void set_private(bool leads_inside) { is_private_ = leads_inside; }
  bool is_private() const noexcept { return is_private_; }
  const std::optional<HostAndPort>& target() const noexcept { return target_; }

  bool count(Direction direction, std::size_t bytes);  // false: no more of it
  const std::shared_ptr<Cutoff>& cutoff() const noexcept { return cutoff_; }
  void finish();  // reports

 private:
  void give_reason(std::string reason);

  std::shared_ptr<EgressState> state_;
  std::shared_ptr<Cutoff> cutoff_ = std::make_shared<Cutoff>();
  EgressAttempt attempt_;
  EgressState::Clock::time_point begun_ = EgressState::Clock::now();
  std::optional<HostAndPort> target_;
  bool is_private_ = false;
  bool silent_ = false;
  bool over_ = false;
};

using StatePtr = std::shared_ptr<EgressState>;
using AttemptPtr = std::shared_ptr<OpenAttempt>;
using RulePtr = std::shared_ptr<const EgressRule>;

// The rule that lets it through, or why nothing does.
Result<RulePtr> admit(const EgressState& state, const HostAndPort& target);

// A connection to where the target leads, if it may lead there.
asio::awaitable<Result<asio::ip::tcp::socket>> dial(StatePtr state, HostAndPort target,
                                                    AttemptPtr attempt);
// The same with TLS, once the server has proven its name.
asio::awaitable<Result<std::shared_ptr<TlsStream>>> dial_tls(StatePtr state, HostAndPort target,
                                                             AttemptPtr attempt);

// An error in the project's JSON.
Response error_answer(const Error& error);
Response error_answer(unsigned status, const Error& error);

// CONNECT.
asio::awaitable<void> serve_connect(StatePtr state, Connection* connection, Exchange* exchange);
// A request for http://…
asio::awaitable<void> serve_absolute(StatePtr state, Exchange* exchange);
// A request inside a connection that was opened for its credentials.
asio::awaitable<void> serve_inside(StatePtr state, HostAndPort host, Exchange* exchange);

// Copies both ways once the client's first words name the right host.
asio::awaitable<void> run_tunnel(StatePtr state, HostAndPort target, RulePtr rule,
                                 TakenSocket client, asio::ip::tcp::socket upstream,
                                 AttemptPtr attempt);
// Answers in the host's place.
asio::awaitable<void> run_interception(StatePtr state, HostAndPort target, TakenSocket client,
                                       AttemptPtr attempt);

// Whether the first words of a client name the host it asked for; if not, why.
std::optional<std::string> mismatch(const std::string& server_name, bool encrypted,
                                    const HostName& asked);

HttpServerOptions connection_options(const EgressLimits& limits, TargetForm targets);

}  // namespace asr
