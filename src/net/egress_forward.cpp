// Requests that the proxy reads: those for http://…, and those inside connections that were opened
// for their credentials. Each is judged by itself, whatever came before it on the same connection.
#include <algorithm>

#include "net/egress_state.hpp"
#include "net/egress_target.hpp"
#include "net/http_proxy_stream.hpp"

namespace asr {

namespace {

constexpr std::uint16_t kHttp = 80;
constexpr std::uint16_t kHttps = 443;
constexpr std::string_view kToProxy = "proxy-";  // headers that are for us

// One request on its way.
struct Errand {
  HostAndPort target;  // where it goes
  std::string path;    // and query
  RulePtr rule;
  bool tls = false;
  AttemptPtr attempt;
};

// Of two for one header the narrower path counts.
Result<Headers> credentials_for(const EgressRule& rule, std::string_view path) {
  std::vector<EgressCredential> all = rule.credentials;
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.path_prefix.size() < b.path_prefix.size();
  });
  Headers headers;
  for (const EgressCredential& credential : all)
    if (TRY(path_is_below(path, credential.path_prefix)))
      headers.set(credential.header, credential.value);
  return headers;
}

asio::awaitable<void> answer(Exchange* exchange, Error error) {
  if (exchange->has_answered()) co_return;
  auto responding = exchange->respond(error_answer(error));
  (void)co_await std::move(responding);
}

// "Bearer abc": the scheme is no secret, and may be left out by who repeats it.
std::string secret_of(const EgressCredential& credential) {
  std::size_t blank = credential.value.rfind(' ');
  return credential.value.substr(blank == std::string::npos ? 0 : blank + 1);
}

Result<ProxyRules> rules_for(const EgressState& state, const Errand& errand,
                             const RequestHead& head) {
  ProxyRules rules;
  rules.target = errand.path;
  rules.server = errand.target.host.text;
  if (errand.tls) rules.request_headers = TRY(credentials_for(*errand.rule, errand.path));
  for (const EgressCredential& credential : errand.rule->credentials)
    rules.masked.push_back(secret_of(credential));
  rules.request_headers.set("Host", host_header(errand.target, errand.tls ? kHttps : kHttp));
  for (const auto& [name, value] : head.headers.all())
    if (equal_ignoring_case(std::string_view(name).substr(0, kToProxy.size()), kToProxy))
      rules.secret_headers.push_back(name);
  rules.cookies = ProxyRules::Cookies::unchanged;
  rules.head_time = state.limits.answer_time;
  rules.idle_time = state.limits.idle_time;
  rules.cutoff = errand.attempt->cutoff();
  rules.count = [attempt = errand.attempt](Direction direction, std::size_t bytes) {
    return attempt->count(direction, bytes);
  };
  return rules;
}

// By the list as it is once the connection stands: nothing is added for one that has gone.
Result<ProxyRules> last_words(const EgressState& state, Errand& errand, const RequestHead& head) {
  errand.rule = TRY(admit(state, errand.target));
  errand.attempt->allow();
  return rules_for(state, errand, head);
}

asio::awaitable<Result<void>> run(StatePtr state, Exchange* exchange, Errand errand) {
  // It would send back what was added.
  if (!errand.rule->credentials.empty() && exchange->head().method == "TRACE")
    co_return fail(Errc::denied, "TRACE shows what the server was sent");
  CO_TRY(rules_for(*state, errand, exchange->head()));
  if (errand.tls) {
    auto dialing = dial_tls(state, errand.target, errand.attempt);
    auto upstream = CO_TRY(co_await std::move(dialing));
    ProxyRules rules = CO_TRY(last_words(*state, errand, exchange->head()));
    auto going = proxy_over(exchange, state->executor, std::move(upstream), std::move(rules));
    co_return co_await std::move(going);
  }
  auto dialing = dial(state, errand.target, errand.attempt);
  asio::ip::tcp::socket socket = CO_TRY(co_await std::move(dialing));
  ProxyRules rules = CO_TRY(last_words(*state, errand, exchange->head()));
  auto upstream = std::make_shared<PlainStream>(std::move(socket));
  auto going = proxy_over(exchange, state->executor, std::move(upstream), std::move(rules));
  co_return co_await std::move(going);
}

asio::awaitable<void> forward(StatePtr state, Exchange* exchange, Errand errand) {
  AttemptPtr attempt = errand.attempt;
  auto running = run(state, exchange, std::move(errand));
  auto done = co_await std::move(running);
  if (done) co_return;
  attempt->fail_with(done.error());
  auto answering = answer(exchange, done.error());
  co_await std::move(answering);
}

// Where a request for http:// goes: with credentials by TLS, to where they are for.
Result<Errand> plan(const EgressState& state, const HostAndPort& asked) {
  Errand errand;
  errand.target = asked;
  if (asked.port == kHttp) {
    RulePtr secure = state.policy->match(asked.host, kHttps);
    if (secure && !secure->credentials.empty()) errand.target.port = kHttps;
  }
  errand.rule = TRY(admit(state, errand.target));
  errand.tls = !errand.rule->credentials.empty() && errand.target.port != kHttp;
  return errand;
}

}  // namespace

asio::awaitable<void> serve_absolute(StatePtr state, Exchange* exchange) {
  const RequestHead& head = exchange->head();
  auto attempt = std::make_shared<OpenAttempt>(state, head.method);
  auto wanted = parse_proxy_target(head.target);
  Result<void> agrees;
  if (wanted) {
    attempt->set_target(wanted->server);
    attempt->set_path(wanted->path);
    agrees = check_host(head.headers, wanted->server, kHttp);
  }
  Result<Errand> errand = !wanted   ? Result<Errand>(fail(wanted.error()))
                          : !agrees ? Result<Errand>(fail(agrees.error()))
                                    : plan(*state, wanted->server);
  if (!errand) {
    attempt->deny(errand.error().what);
    auto answering = answer(exchange, errand.error());
    co_await std::move(answering);
    co_return;
  }
  errand->path = std::move(wanted->path);
  errand->attempt = attempt;
  attempt->set_target(errand->target);
  auto forwarding = forward(state, exchange, std::move(*errand));
  co_await std::move(forwarding);
}

asio::awaitable<void> serve_inside(StatePtr state, HostAndPort target, Exchange* exchange) {
  const RequestHead& head = exchange->head();
  auto attempt = std::make_shared<OpenAttempt>(state, head.method);
  attempt->set_target(target);
  attempt->set_path(head.target);
  auto agrees = check_host(head.headers, target, kHttps);
  auto rule = agrees ? admit(*state, target) : Result<RulePtr>(fail(agrees.error()));
  if (!rule) {
    attempt->deny(rule.error().what);
    auto answering = answer(exchange, rule.error());
    co_await std::move(answering);
    co_return;
  }
  Errand errand{target, head.target, std::move(*rule), true, attempt};
  auto forwarding = forward(state, exchange, std::move(errand));
  co_await std::move(forwarding);
}

}  // namespace asr
