#include "api/e2b/data_plane.hpp"

#include "api/preview.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::size_t kSweepFrom = 64;

bool is_health(const RequestHead& head) {
  return head.path == "/health" && (head.method == "GET" || head.method == "HEAD");
}

// Everybody may ask from everywhere: what protects a sandbox is its token.
void greet_everybody(Exchange* exchange) {
  exchange->always_send("Access-Control-Allow-Origin", "*");
  exchange->always_send("Access-Control-Expose-Headers", "*");
}

asio::awaitable<unsigned> answer_preflight(Exchange* exchange) {
  Response response;
  response.status = 204;
  response.headers.add("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
  response.headers.add("Access-Control-Allow-Headers",
                       std::string(exchange->head().headers.get("access-control-request-headers")));
  response.headers.add("Access-Control-Max-Age", "7200");
  auto responding = exchange->respond(std::move(response));
  (void)co_await std::move(responding);
  co_return 204;
}

}  // namespace

DataPlane::DataPlane(const ApiParts& parts, MayGuess may_guess)
    : parts_(parts), may_guess_(std::move(may_guess)), tokens_(parts.store.secrets()) {}

asio::awaitable<unsigned> DataPlane::refuse(Exchange* exchange, unsigned status,
                                            std::string message) {
  auto failing = answer_plain_error(exchange, status, std::move(message));
  (void)co_await std::move(failing);
  co_return status;
}

asio::awaitable<unsigned> DataPlane::wrong_token(Exchange* exchange, std::string message) {
  if (may_guess_(exchange->head().peer)) return refuse(exchange, 401, std::move(message));
  exchange->always_send("Retry-After", "1");
  return refuse(exchange, 429, "too many wrong tokens from this address");
}

// In the words E2B's clients look for.
asio::awaitable<unsigned> DataPlane::not_found(Exchange* exchange, const DataTarget* target) {
  Response response;
  response.status = 502;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(json::object{{"sandboxId", repair_utf8(target->session)},
                                       {"message", "The sandbox was not found"},
                                       {"code", 502}});
  auto responding = exchange->respond(std::move(response));
  (void)co_await std::move(responding);
  co_return 502;
}

std::shared_ptr<EnvdMemory> DataPlane::memory_of(const std::shared_ptr<Session>& session) {
  auto found = memories_.find(session->id());
  if (found != memories_.end()) return found->second;
  if (memories_.size() >= kSweepFrom && (memories_.size() & (memories_.size() - 1)) == 0)
    std::erase_if(memories_, [](const auto& entry) {
      auto of = entry.second->session.lock();
      return !of || of->state() == SessionState::gone;
    });
  auto memory = std::make_shared<EnvdMemory>();
  memory->session = session;
  memories_.emplace(session->id(), memory);
  return memory;
}

// Those of sessions that have come since, and none of those that have gone.
void DataPlane::learn_tokens() {
  std::size_t live = 0;
  parts_.sessions.each_live([&](const Session&) { ++live; });
  if (known_tokens_.size() > 2 * live + kSweepFrom) {
    known_tokens_.clear();
    by_digest_.clear();
  }
  parts_.sessions.each_live([&](const Session& session) {
    if (known_tokens_.contains(session.id())) return;
    std::string token = tokens_.envd(session.id());
    by_digest_.emplace(sha256(token), session.id());
    known_tokens_.emplace(session.id(), std::move(token));
  });
}

// Whose token it was signed with. All are tried, whichever fits, so that the time it takes tells
// nothing; a digest each, since tokens are computed once.
std::optional<std::string> DataPlane::signer(const SignedRequest& request) {
  learn_tokens();
  std::optional<std::string> found;
  for (const auto& [id, token] : known_tokens_)
    if (is_signed_with(request, token)) found = id;
  return found;
}

// By its digest: how long that is looked for tells nothing about the token.
std::optional<std::string> DataPlane::opened_by(std::string_view token) {
  std::string digest = sha256(token);
  auto found = by_digest_.find(digest);
  if (found == by_digest_.end()) {
    learn_tokens();
    found = by_digest_.find(digest);
  }
  if (found == by_digest_.end()) return std::nullopt;
  return found->second;
}

asio::awaitable<unsigned> DataPlane::handle(Exchange* exchange, DataTarget target) {
  const RequestHead& head = exchange->head();
  if (is_own_port(target.port)) greet_everybody(exchange);
  if (is_preflight(head) && (is_own_port(target.port) || !target.by_host)) {
    greet_everybody(exchange);
    auto answering = answer_preflight(exchange);
    co_return co_await std::move(answering);
  }
  if (!target.problem.empty()) {
    auto refusing = refuse(exchange, 400, std::move(target.problem));
    co_return co_await std::move(refusing);
  }
  if (target.request) {
    auto found = signer(*target.request);
    bool expired = found && is_expired(*target.request, now_ms() / 1000);
    if (!found || expired) {
      auto refusing = expired ? refuse(exchange, 401, "signature is already expired")
                              : wrong_token(exchange, "invalid signature");
      co_return co_await std::move(refusing);
    }
    target.session = *std::move(found);
  }
  if (!target.token.empty()) {
    auto found = opened_by(target.token);
    if (!found && !may_guess_(head.peer)) {
      auto refusing = refuse(exchange, 429, "too many wrong tokens from this address");
      co_return co_await std::move(refusing);
    }
    target.session = found.value_or("");
  }
  if (!is_own_port(target.port)) {
    auto showing = show_port(exchange, std::move(target));
    co_return co_await std::move(showing);
  }
  // Asking whether it runs does not make it run.
  std::shared_ptr<Session> session;
  if (is_health(head)) {
    auto found = parts_.sessions.find_for_preview(target.session);
    if (found && (*found)->state() == SessionState::ready) session = *std::move(found);
  } else {
    auto finding = parts_.sessions.find_awake(target.session);
    auto found = co_await std::move(finding);
    if (found) session = *std::move(found);
  }
  auto sandbox = session ? session->sandbox() : Result<std::shared_ptr<Sandbox>>(nullptr);
  if (!session || !sandbox || !*sandbox || (*sandbox)->state() == SandboxState::gone) {
    auto telling = not_found(exchange, &target);
    co_return co_await std::move(telling);
  }
  auto call = std::make_shared<EnvdCall>(
      EnvdCall{parts_, exchange, session, *sandbox, memory_of(session), Caller()});
  call->caller.id = session->owner();
  call->caller.role = Role::user;
  auto serving =
      target.port == kEnvdPort ? serve_envd(call, target.request.has_value()) : serve_cells(call);
  co_return co_await std::move(serving);
}

// Whom the request works for; false if that was refused.
asio::awaitable<Result<bool>> DataPlane::take_user(EnvdCallPtr call) {
  bool is_file = call->head().path.starts_with("/files");
  std::string name = is_file ? call->head().parameter("username").value_or("")
                             : basic_user(call->head().headers.get("authorization"));
  if (name.empty()) name = call->session->request().user;  // of its template
  auto finding = find_user(call, name);
  if (CO_TRY(co_await std::move(finding))) co_return true;
  std::string message = "invalid username: '" + name + "'";
  if (is_file) {
    auto refusing = answer_plain_error(call->exchange, 401, std::move(message));
    CO_TRY(co_await std::move(refusing));
    co_return false;
  }
  ConnectError error{ConnectCode::unauthenticated, std::move(message)};
  if (is_media(call->head().headers.get("content-type"), "application/connect+json")) {
    RpcStream stream(call->exchange);
    auto finishing = stream.finish(std::move(error));
    CO_TRY(co_await std::move(finishing));
  } else {
    auto answering = answer_unary(call->exchange, Unary{{}, std::move(error)});
    CO_TRY(co_await std::move(answering));
  }
  co_return false;
}

asio::awaitable<unsigned> DataPlane::serve_envd(EnvdCallPtr call, bool is_signed) {
  Exchange* exchange = call->exchange;
  const RequestHead& head = exchange->head();
  if (is_health(head)) {
    Response response;
    response.status = 204;
    auto responding = exchange->respond(std::move(response));
    (void)co_await std::move(responding);
    co_return 204;
  }
  std::string_view token = head.headers.get("x-access-token");
  const std::string& id = call->session->id();
  bool is_file = head.path == "/files";
  if (!token.empty() || !is_file) {
    if (!tokens_.is_envd(id, token)) {
      auto refusing = wrong_token(exchange,
                                  "unauthorized access, please provide a valid access "
                                  "token or method signing if supported");
      co_return co_await std::move(refusing);
    }
  } else if (!is_signed) {
    auto request = signed_request(head);
    bool given = request && *request;
    bool right = given && is_signed_with(**request, tokens_.envd(id));
    bool expired = right && is_expired(**request, now_ms() / 1000);
    if (!right || expired) {
      auto refusing = expired  ? refuse(exchange, 401, "signature is already expired")
                      : !given ? refuse(exchange, 401, "missing signature query parameter")
                               : wrong_token(exchange, "invalid signature");
      co_return co_await std::move(refusing);
    }
  }
  auto taking = take_user(call);
  auto taken = co_await std::move(taking);
  if (!taken || !*taken) co_return taken ? 401 : 0;
  constexpr std::string_view kProcess = "/process.Process/";
  constexpr std::string_view kFilesystem = "/filesystem.Filesystem/";
  std::string_view path = head.path;
  bool is_call = head.method == "POST";
  auto serving = [&]() -> Answering {
    if (is_call && path.starts_with(kProcess))
      return serve_process(call, std::string(path.substr(kProcess.size())));
    if (is_call && path.starts_with(kFilesystem))
      return serve_filesystem(call, std::string(path.substr(kFilesystem.size())));
    if (is_file || path == "/files/compose") return serve_files(call);
    if (head.method == "GET" && path == "/metrics") return serve_metrics(call);
    if (head.method == "GET" && path == "/envs") {
      json::object envs;
      for (const auto& [name, value] : e2b_environment(*call->session))
        envs[repair_utf8(name)] = repair_utf8(value);
      return answer_json(exchange, std::move(envs));
    }
    return answer_plain_error(exchange, 404, "there is nothing at this address");
  }();
  auto served = co_await std::move(serving);
  co_return served ? 200 : 0;
}

asio::awaitable<unsigned> DataPlane::serve_cells(EnvdCallPtr call) {
  const RequestHead& head = call->head();
  const std::string& id = call->session->id();
  std::string_view token = head.headers.get("x-access-token");
  std::string_view traffic = head.headers.get("e2b-traffic-access-token");
  bool is_open = call->session->request().preview.access == PreviewRules::Access::anybody;
  // E2B's clients send the token with code to run, not with all that is asked about contexts.
  bool admitted = !token.empty()                 ? tokens_.is_envd(id, token)
                  : !is_open && !is_health(head) ? tokens_.is_traffic(id, traffic)
                                                 : head.path != "/execute";
  if (!admitted) {
    auto refusing = wrong_token(call->exchange,
                                "unauthorized access, please provide a valid "
                                "access token");
    co_return co_await std::move(refusing);
  }
  auto serving = serve_interpreter(call);
  auto served = co_await std::move(serving);
  co_return served ? 200 : 0;
}

asio::awaitable<unsigned> DataPlane::show_port(Exchange* exchange, DataTarget target) {
  PreviewTarget preview{target.port, target.session, exchange->head().target, target.by_host};
  auto showing = show_preview(parts_, exchange, std::move(preview));
  auto shown = co_await std::move(showing);
  if (shown) co_return 200;
  if (exchange->has_answered()) co_return 0;
  const Error& error = shown.error();
  if (error.code == Errc::not_found || error.code == Errc::gone || error.code == Errc::conflict) {
    auto telling = not_found(exchange, &target);
    co_return co_await std::move(telling);
  }
  unsigned status = error.code == Errc::denied ? 403 : error.code == Errc::timeout ? 504 : 502;
  bool closed = error.what.starts_with(kNothingListens);
  json::object body{
      {"sandboxId", target.session},
      {"message", closed ? "The sandbox is running but port is not open" : error.what},
      {"port", target.port},
      {"code", status}};
  if (!error.hint.empty()) body["hint"] = error.hint;
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "application/json");
  response.body = to_text(body);
  auto responding = exchange->respond(std::move(response));
  (void)co_await std::move(responding);
  co_return status;
}

}  // namespace asr
