#include "net/egress_proxy.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "net/egress_state.hpp"

namespace asr {

namespace {

using tcp = asio::ip::tcp;

constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";

asio::awaitable<void> refuse(Exchange* exchange, AttemptPtr attempt, Error error) {
  attempt->fail_with(error);
  auto responding = exchange->respond(error_answer(error));
  (void)co_await std::move(responding);
}

// Somebody took the proxy for the server.
asio::awaitable<void> explain(StatePtr state, Exchange* exchange) {
  auto attempt = std::make_shared<OpenAttempt>(state, exchange->head().method);
  attempt->set_path(exchange->head().target);
  Error error(Errc::invalid, "this is a proxy, not a server",
              "ask it for http://host/path, or CONNECT host:443; programs that know http_proxy and "
              "https_proxy do");
  auto refusing = refuse(exchange, attempt, std::move(error));
  co_await std::move(refusing);
}

asio::awaitable<void> handle(StatePtr state, Connection* connection, Exchange* exchange) {
  const RequestHead& head = exchange->head();
  if (head.method == "CONNECT") return serve_connect(std::move(state), connection, exchange);
  if (head.target.find("://") != std::string::npos && head.target[0] != '/')
    return serve_absolute(std::move(state), exchange);
  return explain(std::move(state), exchange);
}

asio::awaitable<void> run(std::shared_ptr<Connection> connection) {
  auto serving = connection->serve();
  co_await std::move(serving);
}

asio::awaitable<bool> say_established(tcp::socket* client) {
  boost::system::error_code ec;
  co_await asio::async_write(*client, asio::buffer(kEstablished),
                             asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec;
}

}  // namespace

HttpServerOptions connection_options(const EgressLimits& limits, TargetForm targets) {
  HttpServerOptions options;
  options.most_head_bytes = limits.head_bytes;
  options.head_time = limits.head_time;
  options.idle_time = std::min(limits.idle_time, std::chrono::seconds(75));
  options.body_time = limits.idle_time;
  options.targets = targets;
  return options;
}

asio::awaitable<void> serve_connect(StatePtr state, Connection* connection, Exchange* exchange) {
  const RequestHead& head = exchange->head();
  auto attempt = std::make_shared<OpenAttempt>(state, "CONNECT");
  auto target = parse_authority(head.target);
  if (target) attempt->set_target(*target);
  if (target && (head.has_body || head.length)) target = fail(Errc::invalid, "CONNECT has no body");
  auto rule = target ? admit(*state, *target) : Result<RulePtr>(fail(target.error()));
  if (!rule) {
    auto refusing = refuse(exchange, attempt, rule.error());
    co_await std::move(refusing);
    co_return;
  }
  bool opened = !(*rule)->credentials.empty() && target->port != 80;
  std::optional<tcp::socket> upstream;
  if (!opened) {
    auto dialing = dial(state, *target, attempt);
    auto dialed = co_await std::move(dialing);
    if (!dialed) {
      auto refusing = refuse(exchange, attempt, dialed.error());
      co_await std::move(refusing);
      co_return;
    }
    upstream = std::move(*dialed);
  }
  TakenSocket client = connection->take_socket();
  {
    Cutoff::Part part(attempt->cutoff(), [&client] {
      boost::system::error_code ignored;
      client.socket.close(ignored);
    });
    auto saying = say_established(&client.socket);
    if (!co_await std::move(saying)) {
      attempt->deny("the program has gone");
      co_return;
    }
  }
  if (opened) {
    auto running = run_interception(state, *target, std::move(client), attempt);
    co_await std::move(running);
  } else {
    auto running =
        run_tunnel(state, *target, *rule, std::move(client), std::move(*upstream), attempt);
    co_await std::move(running);
  }
}

struct EgressProxy::Inner : EgressState {
  using EgressState::EgressState;
};

EgressProxy::EgressProxy(std::shared_ptr<Inner> inner) : inner_(std::move(inner)) {}

EgressProxy::~EgressProxy() { stop(); }

Result<std::unique_ptr<EgressProxy>> EgressProxy::make(asio::any_io_executor executor,
                                                       EgressDialer& dialer, EgressPolicy policy,
                                                       EgressLimits limits, Report report,
                                                       std::uint64_t used) {
  auto inner = std::make_shared<Inner>(std::move(executor), dialer, limits);
  inner->policy = std::make_shared<const EgressPolicy>(std::move(policy));
  inner->authority = TRY(Authority::make());
  inner->report = std::move(report);
  inner->used = used;
  return std::unique_ptr<EgressProxy>(new EgressProxy(std::move(inner)));
}

bool EgressProxy::has_room() const noexcept {
  return inner_->connections.size() < inner_->limits.connections;
}

asio::awaitable<void> EgressProxy::wait_for_room() {
  auto inner = inner_;
  while (!inner->stopped && inner->connections.size() >= inner->limits.connections) {
    inner->room.expires_at(asio::steady_timer::time_point::max());
    boost::system::error_code ignored;
    co_await inner->room.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void EgressProxy::serve(UniqueFd connection) {
  auto state = inner_;
  if (state->stopped || !has_room()) return;
  boost::system::error_code ec;
  tcp::socket socket(state->executor);
  socket.assign(tcp::v4(), connection.get(), ec);
  if (ec) return;
  (void)connection.release();
  socket.set_option(tcp::no_delay(true), ec);
  auto serving = std::make_shared<Serving>();
  serving->options = connection_options(state->limits, TargetForm::proxy);
  auto made = make_connection(PlainStream(std::move(socket)), serving);
  // The handler runs inside the connection, which is therefore there.
  serving->handler = [state, raw = made.get()](Exchange* exchange) {
    return handle(state, raw, exchange);
  };
  serving->refusal = [state](unsigned status, std::string what) {
    OpenAttempt(state, "").deny(what);
    return error_answer(status, Error(Errc::invalid, std::move(what)));
  };
  std::uint64_t number = ++state->last_number;
  state->connections.emplace(number, made);
  asio::co_spawn(state->executor, run(std::move(made)), [state, number](const std::exception_ptr&) {
    state->connections.erase(number);
    state->room.cancel();
  });
}

void EgressProxy::replace(EgressPolicy policy) {
  inner_->policy = std::make_shared<const EgressPolicy>(std::move(policy));
  for (OpenAttempt* attempt : inner_->attempts) {
    if (!attempt->target()) continue;
    RulePtr rule = inner_->policy->match(attempt->target()->host, attempt->target()->port);
    bool allowed = rule && (rule->reach == Reach::anywhere || !attempt->is_private());
    if (!allowed) attempt->cutoff()->cut("the session's list of hosts has changed");
  }
}

const EgressPolicy& EgressProxy::policy() const noexcept { return *inner_->policy; }

void EgressProxy::stop() {
  if (std::exchange(inner_->stopped, true)) return;
  for (OpenAttempt* attempt : inner_->attempts) {
    attempt->cutoff()->cut("the session has ended");
    attempt->finish();
  }
  inner_->report = nullptr;
  for (auto& [number, connection] : inner_->connections) connection->close();
  inner_->connections.clear();  // They hold us, by their handlers.
  inner_->room.cancel();
}

EgressCounts EgressProxy::counts() const {
  EgressCounts counts = inner_->counts;
  counts.connections = inner_->connections.size();
  return counts;
}

const std::string& EgressProxy::certificate() const noexcept {
  return inner_->authority->certificate();
}

}  // namespace asr
