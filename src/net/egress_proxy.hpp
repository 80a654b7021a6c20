// The proxy through which one session's programs reach the world: an allow-list, credentials they
// never see, and a word about every attempt.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/egress_dialer.hpp"
#include "net/egress_policy.hpp"

namespace asr {

// What a program tried, told once, when it is over.
struct EgressAttempt {
  std::int64_t at_ms = 0;
  std::string host;  // canonical; empty where none could be understood
  std::uint16_t port = 0;
  std::string method;
  std::string path;  // of a request that could be read, without its query
  bool allowed = false;
  std::string reason;  // why it was denied, or ended other than by itself
  std::uint64_t bytes_up = 0;
  std::uint64_t bytes_down = 0;
  std::chrono::milliseconds duration{0};
};

struct EgressLimits {
  std::size_t connections = 256;  // of programs to the proxy, at once
  std::size_t head_bytes = 32 * 1024;
  std::chrono::seconds head_time{15};     // for the head of a request
  std::chrono::seconds hello_time{15};    // for the first words of TLS, after CONNECT
  std::chrono::seconds idle_time{300};    // without a byte either way
  std::chrono::seconds half_time{60};     // the same once one side has ended
  std::chrono::seconds answer_time{600};  // until a server begins to answer a request
  std::size_t lookups = 4;                // at once
  double names_per_second = 20;           // looked up, after a burst of three times as many
};

struct EgressCounts {
  std::uint64_t attempts = 0;
  std::uint64_t denied = 0;
  std::uint64_t bytes_up = 0;
  std::uint64_t bytes_down = 0;
  std::size_t connections = 0;  // now
};

// Everything on the executor, which runs one thing at a time.
class EgressProxy {
 public:
  using Report = std::function<void(const EgressAttempt&)>;

  // `dialer` must outlive it; `used`: bytes that count as gone through already.
  static Result<std::unique_ptr<EgressProxy>> make(asio::any_io_executor executor,
                                                   EgressDialer& dialer, EgressPolicy policy,
                                                   EgressLimits limits, Report report,
                                                   std::uint64_t used = 0);
  ~EgressProxy();  // As stop().
  EgressProxy(const EgressProxy&) = delete;
  EgressProxy& operator=(const EgressProxy&) = delete;

  // Serves a connection until it is over. With as many as it may have it closes this one.
  void serve(UniqueFd connection);
  bool has_room() const noexcept;
  asio::awaitable<void> wait_for_room();  // returns when stopped, too

  // From now on this one counts; what it does not allow is cut at once.
  void replace(EgressPolicy policy);
  const EgressPolicy& policy() const noexcept;

  // Cuts everything, reports what was under way, and reports no more.
  void stop();

  EgressCounts counts() const;
  // Of the authority that signs for hosts with credentials, in PEM: what programs inside must
  // trust.
  const std::string& certificate() const noexcept;

 private:
  struct Inner;
  explicit EgressProxy(std::shared_ptr<Inner> inner);
  std::shared_ptr<Inner> inner_;
};

}  // namespace asr
