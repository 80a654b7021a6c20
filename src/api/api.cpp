#include "api/api.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "api/e2b/answer.hpp"
#include "api/e2b/control_plane.hpp"
#include "api/e2b/data_plane.hpp"
#include "api/errors.hpp"
#include "api/openapi.hpp"
#include "api/preview.hpp"
#include "api/trace.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

Error not_authenticated(const char* what) {
  return Error(Errc::denied, what, "send a key as \"Authorization: Bearer …\" or \"X-API-Key: …\"");
}

// The host of a Host header, without its port.
std::string_view host_of(std::string_view header) {
  if (header.starts_with('['))
    return header.substr(0, std::min(header.find(']') + 1, header.size()));
  return header.substr(0, std::min(header.find(':'), header.size()));
}

bool has_escaped_slash(std::string_view target) {
  std::string_view path = target.substr(0, std::min(target.find('?'), target.size()));
  return path.find("%2f") != std::string_view::npos || path.find("%2F") != std::string_view::npos;
}

bool is_local_name(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" ||
         host.ends_with(".localhost");
}

constexpr std::size_t kQuicklyParsed = 256 << 10;
constexpr std::size_t kMostValues = 1'000'000;  // of a JSON body
constexpr std::size_t kMostLongBodies = 2;
constexpr std::chrono::seconds kLongBodyPatience{30};

asio::awaitable<Result<json::object>> body_from(std::string text, std::string schema) {
  json::value body = CO_TRY(parse_json(text, kMostValues));
  CO_TRY(check_schema(body, schema_of(schema), schemas()));
  co_return std::move(body.as_object());
}

bool is_one_of(std::string_view text, const std::vector<std::string>& list) {
  for (const std::string& each : list)
    if (equal_ignoring_case(each, text)) return true;
  return false;
}

}  // namespace

asio::awaitable<bool> may_go_on(ApiParts parts, Caller caller, std::shared_ptr<Session> session) {
  if (!parts.keys.still_holds(caller) || session->state() == SessionState::gone) co_return false;
  auto checking = parts.sessions.check_access(std::move(caller), std::move(session), Access::look);
  auto allowed = co_await std::move(checking);
  co_return allowed.has_value();
}

Api::Api(const ApiParts& parts, ApiOptions options)
    : parts_(parts),
      options_(std::move(options)),
      metrics_(parts.sessions, parts.batches),
      by_key_(options_.per_key, 100'000),
      by_peer_(options_.per_peer, 100'000),
      by_wrong_key_(options_.wrong_keys, 100'000),
      long_body_read_(parts.executor) {
  router_.add(system_routes(parts_, this));
  router_.add(session_routes(parts_));
  router_.add(command_routes(parts_));
  router_.add(interpreter_routes(parts_));
  router_.add(file_routes(parts_));
  router_.add(branch_routes(parts_));
  router_.add(history_routes(parts_));
  router_.add(change_routes(parts_, options_.apply));
  router_.add(stream_routes(parts_));
  router_.add(event_routes(parts_));
  router_.add(webhook_routes(parts_.webhooks));
  router_.add(key_routes(parts_));
  router_.add(volume_routes(parts_));
  router_.add(compat_routes(parts_));
  router_.add(batch_routes(parts_));
  router_.add(preview_routes(parts_, options_.preview_domain));
  if (options_.e2b.enabled) {
    auto tokens = std::make_shared<const E2bTokens>(parts_.store.secrets());
    router_.add(e2b_routes({parts_, options_.e2b, options_.preview_domain, std::move(tokens)}));
    auto may_guess = [this](const std::string& peer) {
      return by_wrong_key_.take(peer).count() == 0;
    };
    data_plane_ = std::make_unique<DataPlane>(parts_, may_guess);
  }
  document_ = openapi_document(router_.routes());
}

Api::~Api() = default;

Response Api::refuse(unsigned status, std::string what) {
  Trace trace = trace_from("");
  metrics_.count_request("none", "none", status, std::chrono::seconds(0));
  Errc code = status >= 500 ? Errc::internal : status == 408 ? Errc::timeout : Errc::invalid;
  Response response = error_response(status, Error(code, std::move(what)), trace.id);
  response.headers.add("traceparent", trace.header());
  return response;
}

// A page in a browser must not reach a server its user did not name: neither by a name it rebound,
// nor from an origin nobody allowed.
Result<void> Api::check_origin(const RequestHead& head) const {
  std::string_view host = host_of(head.headers.get("host"));
  if (options_.only_loopback && !is_local_name(host) && !is_one_of(host, options_.hosts))
    return fail(Errc::denied, "this server is not called \"" + std::string(host) + "\"",
                "name it with --hosts if it is");
  std::string_view origin = head.headers.get("origin");
  if (origin.empty()) return {};
  std::string own = (head.tls ? "https://" : "http://") + std::string(head.headers.get("host"));
  if (origin == own || is_one_of(origin, options_.origins)) return {};
  return fail(Errc::denied, "pages of " + std::string(origin) + " may not call this server",
              "allow it with --origins");
}

Result<Caller> Api::authenticate(const RequestHead& head) {
  if (options_.no_auth) return Caller{"local", Role::admin, 0, "", 0};
  std::size_t given = head.headers.count("authorization") + head.headers.count("x-api-key");
  if (given == 0) return fail(not_authenticated("a key is missing"));
  if (given > 1) return fail(Errc::invalid, "more than one key was sent");
  std::string_view key = head.headers.get("x-api-key");
  if (key.empty()) {
    std::string_view value = head.headers.get("authorization");
    constexpr std::string_view kScheme = "Bearer ";
    if (value.size() <= kScheme.size() ||
        !equal_ignoring_case(value.substr(0, kScheme.size()), kScheme))
      return fail(not_authenticated("the Authorization is no bearer token"));
    key = value.substr(kScheme.size());
  }
  if (options_.jwt && JwtVerifier::looks_like_token(key))
    return options_.jwt->verify(key, now_ms() / 1000);
  auto caller = parts_.keys.find(key);
  if (!caller) return fail(not_authenticated("the key is not valid"));
  return std::move(*caller);
}

// A place among those whose long bodies are in memory.
class Api::LongBody {
 public:
  LongBody(Api* api, std::string caller) : api_(api), caller_(std::move(caller)) {
    api_->long_bodies_.insert(caller_);
  }
  ~LongBody() {
    api_->long_bodies_.erase(caller_);
    api_->long_body_read_.ring();
  }
  LongBody(const LongBody&) = delete;
  LongBody& operator=(const LongBody&) = delete;

 private:
  Api* api_;
  std::string caller_;
};

asio::awaitable<Result<std::unique_ptr<Api::LongBody>>> Api::admit_long_body(CallPtr call,
                                                                             const Route* route) {
  bool may_be_long = route->most_json > options_.most_json && call->head().has_body &&
                     call->head().length.value_or(SIZE_MAX) > options_.most_json;
  if (!may_be_long) co_return nullptr;
  auto deadline = Bell::Clock::now() + kLongBodyPatience;
  auto has_place = [&] {
    return long_bodies_.size() < kMostLongBodies && !long_bodies_.contains(call->caller.id);
  };
  while (!has_place()) {
    if (Bell::Clock::now() >= deadline)
      co_return fail(Errc::exhausted, "others send long requests at the moment",
                     "try again in a moment, or send less at once");
    co_await long_body_read_.wait(deadline);
  }
  co_return std::make_unique<LongBody>(this, call->caller.id);
}

asio::awaitable<Result<void>> Api::read_json(CallPtr call, const Route* route) {
  if (route->body.empty()) co_return Result<void>();
  std::string_view type = call->head().headers.get("content-type");
  type = type.substr(0, std::min(type.find(';'), type.size()));
  auto reading = call->exchange->read_body(std::max(route->most_json, options_.most_json));
  std::string text = CO_TRY(co_await std::move(reading));
  if (text.empty() && route->body_optional) co_return Result<void>();
  // Anything else can be sent by a page of another origin without asking.
  if (!equal_ignoring_case(type, "application/json"))
    co_return fail(Errc::invalid, "the body must be JSON", "send Content-Type: application/json");
  bool quick = text.size() <= kQuicklyParsed;
  auto checking = body_from(std::move(text), route->body);
  if (quick)
    call->body = CO_TRY(co_await std::move(checking));
  else
    call->body = CO_TRY(
        co_await asio::co_spawn(parsing_.get_executor(), std::move(checking), asio::use_awaitable));
  co_return Result<void>();
}

asio::awaitable<Result<Reply>> Api::answer(CallPtr call, const Route* route) {
  if (call->caller.role < route->least)
    co_return fail(Errc::denied, "this needs the role " + std::string(to_string(route->least)),
                   "ask an admin for a key with that role");
  {
    auto admitting = admit_long_body(call, route);
    auto place = CO_TRY(co_await std::move(admitting));
    auto reading = read_json(call, route);
    if (auto read = co_await std::move(reading); !read) {
      if (read.error().code != Errc::exhausted) co_return fail(read.error());
      json::object told = route->dialect == Dialect::e2b
                              ? e2b_error(413, read.error())
                              : json_of(read.error(), call->caller.trace_id);
      co_return Reply{413, std::move(told), false, {}};
    }
  }
  auto handling = route->handle(call);
  co_return co_await std::move(handling);
}

asio::awaitable<void> Api::send(CallPtr call, Reply reply) {
  Response response;
  response.status = reply.status;
  response.headers = std::move(reply.headers);
  if (!reply.body.is_null()) {
    response.headers.add("Content-Type", "application/json");
    response.body = to_text(reply.body);
  }
  auto responding = call->exchange->respond(std::move(response));
  (void)co_await std::move(responding);
}

// Before anything is done for a request: may it come in at all, and who sends it?
std::optional<Api::Refused> Api::admit(const CallPtr& call, const Router::Match& match) {
  const RequestHead& head = call->head();
  auto too_many = [](const char* what, std::chrono::milliseconds wait) {
    Refused refused{429, Error(Errc::exhausted, what, "wait, then try again"), {}};
    refused.headers.add("Retry-After", std::to_string((wait.count() + 999) / 1000));
    return refused;
  };
  if (auto wait = by_peer_.take(head.peer); wait.count() > 0)
    return too_many("too many requests from this address", wait);
  if (auto origin = check_origin(head); !origin) return Refused{403, origin.error(), {}};
  if (!match.route && match.allowed.empty())
    return Refused{404,
                   Error(Errc::not_found, "there is nothing at this address",
                         "GET /openapi.json lists what there is"),
                   {}};
  if (!match.route) {
    Refused refused{405, Error(Errc::invalid, "this address has no " + head.method), {}};
    refused.headers.add("Allow", match.allowed);
    return refused;
  }
  if (match.route->needs == Needs::nothing) return std::nullopt;
  auto caller = authenticate(head);
  if (!caller && caller.error().code == Errc::invalid) return Refused{400, caller.error(), {}};
  if (!caller) {
    if (auto wait = by_wrong_key_.take(head.peer); wait.count() > 0)
      return too_many("too many wrong keys from this address", wait);
    Refused refused{401, caller.error(), {}};
    refused.headers.add("WWW-Authenticate", "Bearer");
    return refused;
  }
  call->caller = std::move(*caller);
  if (auto wait = by_key_.take(call->caller.id); wait.count() > 0)
    return too_many("too many requests with this key", wait);
  return std::nullopt;
}

// Handlers do not throw; if one does, it is a bug, and the connection is not to suffer.
asio::awaitable<Result<Reply>> Api::answer_safely(CallPtr call, const Route* route) {
  try {
    auto answering = answer(call, route);
    co_return co_await std::move(answering);
  } catch (const std::exception& problem) {
    parts_.log.error(
        "a handler threw",
        {{"operation", route->name}, {"what", problem.what()}, {"trace", call->caller.trace_id}});
    co_return fail(Errc::internal, "something went wrong here",
                   "the server's log has more under this trace_id");
  }
}

asio::awaitable<void> Api::fail_with(CallPtr call, Refused refused) {
  metrics_.count_fault(to_string(refused.error.fault()));
  if (refused.status >= 500)
    parts_.log.error("request failed", {{"path", call->head().path},
                                        {"what", refused.error.what},
                                        {"trace", call->caller.trace_id}});
  if (call->exchange->has_answered()) co_return;
  Response response = refused.dialect == Dialect::e2b
                          ? e2b_error_response(refused.status, refused.error)
                          : error_response(refused.status, refused.error, call->caller.trace_id);
  for (const auto& [name, value] : refused.headers.all()) response.headers.add(name, value);
  auto responding = call->exchange->respond(std::move(response));
  (void)co_await std::move(responding);
}

asio::awaitable<void> Api::preview(Exchange* exchange, PreviewTarget target) {
  auto began = std::chrono::steady_clock::now();
  auto call = std::make_shared<Call>();
  call->exchange = exchange;
  Trace trace = trace_from(exchange->head().headers.get("traceparent"));
  call->caller.trace_id = trace.id;
  std::string method = exchange->head().method;
  auto showing = show_preview(parts_, exchange, std::move(target));
  auto shown = co_await std::move(showing);
  unsigned status = 200;
  if (!shown) {
    if (!exchange->has_answered()) exchange->always_send("traceparent", trace.header());
    // Whose server it is that does not answer: not this one.
    status = shown.error().code == Errc::timeout ? 504
             : shown.error().code == Errc::os    ? 502
                                                 : status_of(shown.error());
    Refused refused{status, shown.error(), {}};
    auto failing = fail_with(call, std::move(refused));
    co_await std::move(failing);
  }
  metrics_.count_request("preview", method, status, std::chrono::steady_clock::now() - began);
}

// Whoever has a sandbox's token is let in; keys are for the control plane.
asio::awaitable<void> Api::serve_data(Exchange* exchange, DataTarget target) {
  auto began = std::chrono::steady_clock::now();
  std::string method = exchange->head().method;
  auto call = std::make_shared<Call>();
  call->exchange = exchange;
  call->caller.trace_id = trace_from(exchange->head().headers.get("traceparent")).id;
  unsigned status = 0;
  if (auto wait = by_peer_.take(exchange->head().peer); wait.count() > 0) {
    Refused refused{429, Error(Errc::exhausted, "too many requests from this address"), {}};
    refused.headers.add("Retry-After", std::to_string((wait.count() + 999) / 1000));
    refused.dialect = Dialect::e2b;
    auto failing = fail_with(call, std::move(refused));
    co_await std::move(failing);
    status = 429;
  } else {
    try {
      auto serving = data_plane_->handle(exchange, std::move(target));
      status = co_await std::move(serving);
    } catch (const std::exception& problem) {
      parts_.log.error("the data plane threw", {{"what", problem.what()}});
    }
  }
  metrics_.count_request("e2b_data", method, status, std::chrono::steady_clock::now() - began);
}

// For pages of other origins that were allowed: what a browser wants to hear before it lets them
// read.
void Api::greet_origin(Exchange* exchange) const {
  std::string origin(exchange->head().headers.get("origin"));
  if (origin.empty() || !is_one_of(origin, options_.origins)) return;
  exchange->always_send("Access-Control-Allow-Origin", origin);
  exchange->always_send(
      "Access-Control-Expose-Headers",
      "ETag, Location, Retry-After, Content-Range, Content-Disposition, Batch-Id, traceparent");
  exchange->always_send("Vary", "Origin");
}

// A browser asks first, without a key, whether it may ask.
bool Api::is_preflight(const RequestHead& head) const {
  return head.method == "OPTIONS" && head.headers.has("access-control-request-method") &&
         is_one_of(head.headers.get("origin"), options_.origins);
}

asio::awaitable<void> Api::answer_preflight(Exchange* exchange) {
  Response response;
  response.status = 204;
  response.headers.add("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE");
  response.headers.add("Access-Control-Allow-Headers",
                       "Authorization, X-API-Key, Content-Type, Idempotency-Key, Range, If-Match, "
                       "If-None-Match, Last-Event-ID, traceparent");
  response.headers.add("Access-Control-Max-Age", "600");
  auto responding = exchange->respond(std::move(response));
  (void)co_await std::move(responding);
}

// A slash that was escaped is part of a name. No name of ours has one; E2B's templates may.
Router::Match Api::find_route(const RequestHead& head) const {
  if (!has_escaped_slash(head.target)) return router_.find(head.method, head.path);
  std::string_view path(head.target);
  path = path.substr(0, std::min(path.find('?'), path.size()));
  Router::Match match = router_.find(head.method, path);
  if (!match.route || match.route->dialect != Dialect::e2b) return {};
  for (std::string& part : match.parts) {
    auto decoded = percent_decode(part);
    if (!decoded) return {};
    part = std::move(*decoded);
  }
  return match;
}

asio::awaitable<void> Api::handle(Exchange* exchange) {
  if (data_plane_) {
    if (auto target = data_target(exchange->head(), options_.preview_domain)) {
      auto serving = serve_data(exchange, std::move(*target));
      co_return co_await std::move(serving);
    }
  }
  greet_origin(exchange);
  if (is_preflight(exchange->head())) {
    auto answering = answer_preflight(exchange);
    co_return co_await std::move(answering);
  }
  if (auto target = preview_target(exchange->head(), options_.preview_domain)) {
    auto previewing = preview(exchange, std::move(*target));
    co_return co_await std::move(previewing);
  }
  auto began = std::chrono::steady_clock::now();
  auto call = std::make_shared<Call>();
  call->exchange = exchange;
  Trace trace = trace_from(call->head().headers.get("traceparent"));
  exchange->always_send("traceparent", trace.header());
  Router::Match match = find_route(call->head());
  Dialect dialect = match.route ? match.route->dialect : Dialect::own;
  call->parts = match.parts;
  std::optional<Refused> refused = admit(call, match);
  call->caller.trace_id = trace.id;
  unsigned status = 200;
  if (!refused) {
    auto answering = answer_safely(call, match.route);
    auto reply = co_await std::move(answering);
    if (!reply) {
      unsigned code =
          dialect == Dialect::e2b ? e2b_status_of(reply.error()) : status_of(reply.error());
      refused = Refused{code, reply.error(), {}};
    } else if (!reply->answered) {
      status = reply->status;
      auto sending = send(call, std::move(*reply));
      co_await std::move(sending);
    }
  }
  if (refused) {
    status = refused->status;
    refused->dialect = dialect;
    auto failing = fail_with(call, std::move(*refused));
    co_await std::move(failing);
  }
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - began;
  metrics_.count_request(match.route ? match.route->name : "none",
                         match.route ? match.route->method : "none", status, time);
  if (!parts_.log.writes(LogLevel::info)) co_return;
  parts_.log.info("request", {{"method", call->head().method},
                              {"path", call->head().path},
                              {"status", std::to_string(status)},
                              {"ms", std::to_string(time.count() * 1000)},
                              {"key", call->caller.id},
                              {"peer", call->head().peer},
                              {"trace", trace.id}});
}

}  // namespace asr
