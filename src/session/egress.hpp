// The door of one session: takes the connections its sandbox hands out, and has the proxy serve
// them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "engine/sandbox.hpp"
#include "net/egress_proxy.hpp"
#include "net/json.hpp"

namespace asr {

// All on one thread. Without it, or once it has stopped, nothing leaves the sandbox.
class SessionEgress {
 public:
  struct Parts {
    asio::any_io_executor executor;
    EgressDialer& dialer;  // outlives it, as the log does
    const Log& log;
    EgressLimits limits;
    EgressProxy::Report report;  // gets each attempt, once; not after stop()
    std::uint64_t used = 0;      // bytes, of an earlier life of the session
  };

  // `sandbox` has Network::proxied. Accepts until the sandbox ends or stop().
  static Result<std::unique_ptr<SessionEgress>> open(Parts parts, std::shared_ptr<Sandbox> sandbox,
                                                     EgressPolicy policy);
  ~SessionEgress();  // As stop().
  SessionEgress(const SessionEgress&) = delete;
  SessionEgress& operator=(const SessionEgress&) = delete;

  // What it no longer allows is cut.
  void replace(EgressPolicy policy);
  // Cuts everything and takes no more. A connection that is on its way out is closed.
  void stop();

  EgressCounts counts() const;
  // What programs inside must trust where hosts have credentials, in PEM.
  const std::string& certificate() const noexcept { return certificate_; }

 private:
  struct Shared;
  SessionEgress(std::shared_ptr<Shared> shared, std::string certificate);
  static asio::awaitable<void> accept(std::shared_ptr<Shared> shared,
                                      std::shared_ptr<Sandbox> sandbox);

  std::shared_ptr<Shared> shared_;
  std::string certificate_;
};

// For events and records.
json::object json_of(const EgressAttempt& attempt);

// Authorities for programs inside: those of this machine, and the session's. Reads a file.
std::string trust_bundle(const std::string& certificate);
// The variables by which usual programs find such a file.
std::map<std::string, std::string> trust_variables(const std::string& path);

}  // namespace asr
