#include "session/egress.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fstream>
#include <iterator>

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::chrono::milliseconds kPause{200};  // after a failure that may pass

}  // namespace

// Held by the coroutine, which may see the end of the session later than others.
struct SessionEgress::Shared {
  std::unique_ptr<EgressProxy> proxy;  // none: stopped
  const Log& log;
  EgressCounts last;
};

SessionEgress::SessionEgress(std::shared_ptr<Shared> shared, std::string certificate)
    : shared_(std::move(shared)), certificate_(std::move(certificate)) {}

SessionEgress::~SessionEgress() { stop(); }

Result<std::unique_ptr<SessionEgress>> SessionEgress::open(Parts parts,
                                                           std::shared_ptr<Sandbox> sandbox,
                                                           EgressPolicy policy) {
  auto proxy = TRY(EgressProxy::make(parts.executor, parts.dialer, std::move(policy), parts.limits,
                                     std::move(parts.report), parts.used));
  std::string certificate = proxy->certificate();
  auto shared = std::make_shared<Shared>(Shared{std::move(proxy), parts.log, {}});
  asio::co_spawn(parts.executor, accept(shared, std::move(sandbox)), asio::detached);
  return std::unique_ptr<SessionEgress>(
      new SessionEgress(std::move(shared), std::move(certificate)));
}

asio::awaitable<void> SessionEgress::accept(std::shared_ptr<Shared> shared,
                                            std::shared_ptr<Sandbox> sandbox) {
  auto executor = co_await asio::this_coro::executor;
  while (shared->proxy) {
    // With as many as it may have, a sandbox waits in its own queue, at its own cost.
    auto waiting = shared->proxy->wait_for_room();
    co_await std::move(waiting);
    if (!shared->proxy) co_return;
    auto accepting = sandbox->accept_egress();
    auto connection = co_await std::move(accepting);
    if (!shared->proxy) co_return;
    if (connection) {
      shared->proxy->serve(std::move(*connection));
      continue;
    }
    Errc code = connection.error().code;
    if (code == Errc::gone || code == Errc::invalid) co_return;
    shared->log.warning("a connection to the proxy was lost", {{"why", connection.error().what}});
    asio::steady_timer pause(executor, kPause);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void SessionEgress::replace(EgressPolicy policy) {
  if (shared_->proxy) shared_->proxy->replace(std::move(policy));
}

void SessionEgress::stop() {
  if (!shared_->proxy) return;
  shared_->proxy->stop();
  shared_->last = shared_->proxy->counts();
  shared_->proxy.reset();
}

EgressCounts SessionEgress::counts() const {
  return shared_->proxy ? shared_->proxy->counts() : shared_->last;
}

json::object json_of(const EgressAttempt& attempt) {
  return {{"at", iso_time(attempt.at_ms)},
          {"host", attempt.host},
          {"port", attempt.port},
          {"method", attempt.method},
          {"path", attempt.path},
          {"verdict", attempt.allowed ? "allowed" : "denied"},
          {"reason", attempt.reason},
          {"bytes_up", attempt.bytes_up},
          {"bytes_down", attempt.bytes_down},
          {"duration_ms", attempt.duration.count()}};
}

std::string trust_bundle(const std::string& certificate) {
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}) {
    std::ifstream file(path, std::ios::binary);
    if (!file) continue;
    std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!all.empty() && !all.ends_with('\n')) all += '\n';
    return all + certificate;
  }
  return certificate;
}

std::map<std::string, std::string> trust_variables(const std::string& path) {
  std::map<std::string, std::string> variables;
  for (const char* name :
       {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
        "NODE_EXTRA_CA_CERTS", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE"})
    variables[name] = path;
  return variables;
}

}  // namespace asr
