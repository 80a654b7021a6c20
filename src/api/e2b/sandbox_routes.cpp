// Sandboxes of E2B's clients: made, found, listed, changed, paused, resumed and ended.
#include "api/e2b/answer.hpp"
#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/network.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "api/e2b/templates.hpp"
#include "api/idempotency.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::int64_t kMostRefresh = 3600;

asio::awaitable<Result<std::shared_ptr<Session>>> make(E2bParts parts, CallPtr call,
                                                       E2bGeneration generation) {
  E2bCreate create = CO_TRY(e2b_create_from(call->body, generation, parts.options));
  auto making = e2b_make(parts, call->caller, std::move(create));
  co_return co_await std::move(making);
}

asio::awaitable<Result<Reply>> make_named(E2bParts parts, CallPtr call, E2bGeneration generation) {
  auto making = make(std::move(parts), std::move(call), generation);
  auto session = CO_TRY(co_await std::move(making));
  co_return Reply{201, {{"sandboxID", session->id()}}, false, {}};
}

// Under an Idempotency-Key only the sandbox's name is kept: its tokens are never stored.
asio::awaitable<Result<std::shared_ptr<Session>>> make_once(E2bParts parts, CallPtr call,
                                                            E2bGeneration generation) {
  auto working = [parts, generation](const ApiParts&, CallPtr same) {
    return make_named(parts, std::move(same), generation);
  };
  Reply made = CO_TRY(co_await once(parts.api, call, working));
  std::string id(made.body.at("sandboxID").get_string());
  auto finding = parts.sessions().find(call->caller, std::move(id), Access::use);
  auto session = co_await std::move(finding);
  if (!session)
    co_return fail(Errc::conflict, "the sandbox that was made with this Idempotency-Key has ended",
                   "use a new key for a new sandbox");
  co_return session;
}

asio::awaitable<Result<Reply>> create_in(E2bParts parts, CallPtr call, E2bGeneration generation) {
  bool once_only = !call->head().headers.get("idempotency-key").empty();
  auto making = once_only ? make_once(parts, call, generation) : make(parts, call, generation);
  auto session = co_await std::move(making);
  // What a key has used up is 429. A server without room is busy: that is nobody's own limit.
  if (!session && session.error().code == Errc::exhausted && parts.sessions().is_full()) {
    json::object busy = e2b_error(503, session.error());
    busy["error_code"] = "sandbox_capacity_unavailable";
    co_return Reply{503, std::move(busy), false, {}};
  }
  if (!session) co_return fail(session.error());
  co_return Reply{201, e2b_sandbox(parts, **session, call->head()), false, {}};
}

asio::awaitable<Result<Reply>> create_first(E2bParts parts, CallPtr call) {
  return create_in(std::move(parts), std::move(call), E2bGeneration::first);
}
asio::awaitable<Result<Reply>> create_second(E2bParts parts, CallPtr call) {
  return create_in(std::move(parts), std::move(call), E2bGeneration::second);
}

// Its end is never brought nearer by this.
asio::awaitable<Result<void>> lengthen(E2bParts parts, Caller caller,
                                       std::shared_ptr<Session> session,
                                       std::chrono::seconds time) {
  std::int64_t ends = session->record().expires_ms;
  std::int64_t wanted = now_ms() + std::chrono::milliseconds(time).count();
  if (ends == 0 || ends >= wanted) co_return Result<void>();
  Sessions::Patch patch;
  patch.ttl = time;
  auto patching = parts.sessions().patch(std::move(caller), std::move(session), std::move(patch));
  co_return co_await std::move(patching);
}

// It goes on, for so long from now.
asio::awaitable<Result<void>> wake(E2bParts parts, Caller caller, std::shared_ptr<Session> session,
                                   std::chrono::seconds time) {
  auto resuming = parts.sessions().resume(caller, session);
  auto resumed = co_await std::move(resuming);
  // Somebody else's request may have woken it first.
  if (!resumed && session->state() != SessionState::ready) co_return resumed;
  Sessions::Patch patch;
  patch.ttl = time;
  auto patching = parts.sessions().patch(std::move(caller), std::move(session), std::move(patch));
  co_return co_await std::move(patching);
}

Result<void> check_memory(const json::object& body) {
  if (!TRY(E2bFields(body).flag("memory")).value_or(true))
    return fail(Errc::unsupported, "memory: a pause keeps the memory here, and so does a resume",
                "leave it out, or make a new sandbox from a snapshot");
  return {};
}

asio::awaitable<Result<Reply>> connect_in(E2bParts parts, CallPtr call, std::int64_t standard) {
  auto time = CO_TRY(e2b_timeout_from(call->body, standard, parts.options));
  CO_TRY(check_memory(call->body));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  bool running = session->state() == SessionState::ready;
  auto changing = running ? lengthen(parts, call->caller, session, time)
                          : wake(parts, call->caller, session, time);
  CO_TRY(co_await std::move(changing));
  co_return Reply{running ? 200U : 201U, e2b_sandbox(parts, *session, call->head()), false, {}};
}

asio::awaitable<Result<Reply>> connect_first(E2bParts parts, CallPtr call) {
  return connect_in(std::move(parts), std::move(call), 15);
}
asio::awaitable<Result<Reply>> connect_second(E2bParts parts, CallPtr call) {
  return connect_in(std::move(parts), std::move(call), 300);
}

asio::awaitable<Result<Reply>> resume(E2bParts parts, CallPtr call) {
  auto time = CO_TRY(e2b_timeout_from(call->body, 15, parts.options));
  CO_TRY(check_memory(call->body));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  if (session->state() == SessionState::ready)
    co_return fail(Errc::conflict, "Sandbox " + session->id() + " is already running");
  auto waking = wake(parts, call->caller, session, time);
  CO_TRY(co_await std::move(waking));
  co_return Reply{201, e2b_sandbox(parts, *session, call->head()), false, {}};
}

asio::awaitable<Result<Reply>> list_in(E2bParts parts, CallPtr call, E2bGeneration generation) {
  SessionFilter filter = CO_TRY(e2b_filter_from(call->head(), generation));
  SessionFilter running;
  running.states = {"creating", "ready"};
  auto listing = parts.sessions().list(call->caller, std::move(filter));
  SessionPage page = CO_TRY(co_await std::move(listing));
  auto counting = parts.sessions().count(call->caller, std::move(running));
  std::int64_t count = CO_TRY(co_await std::move(counting));
  json::array sandboxes;
  for (const SessionRecord& record : page.sessions) sandboxes.push_back(e2b_listed(record));
  Reply reply{200, std::move(sandboxes), false, {}};
  if (!page.cursor.empty()) reply.headers.add("X-Next-Token", page.cursor);
  reply.headers.add("X-Total-Running", std::to_string(count));
  co_return reply;
}

asio::awaitable<Result<Reply>> list_first(E2bParts parts, CallPtr call) {
  return list_in(std::move(parts), std::move(call), E2bGeneration::first);
}
asio::awaitable<Result<Reply>> list_second(E2bParts parts, CallPtr call) {
  return list_in(std::move(parts), std::move(call), E2bGeneration::second);
}

asio::awaitable<Result<Reply>> get(E2bParts parts, CallPtr call) {
  auto finding = e2b_find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  co_return Reply{200, e2b_detail(parts, *session, call->head()), false, {}};
}

asio::awaitable<Result<Reply>> remove(E2bParts parts, CallPtr call) {
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto removing = parts.sessions().remove(call->caller, std::move(session));
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

Result<void> check_running(const Session& session) {
  if (session.state() == SessionState::ready) return {};
  return fail(Errc::conflict, "Sandbox " + session.id() + " is not running", "connect to it first");
}

asio::awaitable<Result<Reply>> set_timeout(E2bParts parts, CallPtr call) {
  auto seconds = CO_TRY(E2bFields(call->body).number_if("timeout", 0, INT64_MAX));
  if (!seconds) co_return fail(Errc::invalid, "timeout is missing");
  if (*seconds > 0) CO_TRY(e2b_timeout_from(call->body, 0, parts.options));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(check_running(*session));
  if (*seconds == 0) {  // Its time is over now.
    bool pauses = session->request().at_expiry == AtExpiry::pause;
    auto ending = pauses ? parts.sessions().pause(call->caller, session)
                         : parts.sessions().remove(call->caller, session);
    CO_TRY(co_await std::move(ending));
    co_return Reply::none();
  }
  Sessions::Patch patch;
  patch.ttl = std::chrono::seconds(*seconds);
  auto patching = parts.sessions().patch(call->caller, session, std::move(patch));
  CO_TRY(co_await std::move(patching));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> refresh(E2bParts parts, CallPtr call) {
  std::int64_t seconds = CO_TRY(E2bFields(call->body).number("duration", 15, 0, kMostRefresh));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(check_running(*session));
  auto lengthening = lengthen(parts, call->caller, session, std::chrono::seconds(seconds));
  CO_TRY(co_await std::move(lengthening));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> pause(E2bParts parts, CallPtr call) {
  CO_TRY(check_memory(call->body));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  if (session->state() != SessionState::ready)
    co_return fail(Errc::conflict, "Sandbox " + session->id() + " is already paused");
  auto pausing = parts.sessions().pause(call->caller, session);
  CO_TRY(co_await std::move(pausing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> set_network(E2bParts parts, CallPtr call) {
  auto internet = CO_TRY(E2bFields(call->body).flag("allow_internet_access"));
  NetworkRequest network = CO_TRY(e2b_network_from(call->body, internet, parts.options.internet));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(check_running(*session));
  auto setting = parts.sessions().set_network(call->caller, session, std::move(network));
  CO_TRY(co_await std::move(setting));
  co_return Reply::none();
}

}  // namespace

asio::awaitable<Result<std::shared_ptr<Session>>> e2b_find(E2bParts parts, CallPtr call,
                                                           Access access) {
  std::string id = e2b_sandbox_id(call->parts[0]);
  auto finding = parts.sessions().find(call->caller, id, access);
  auto session = co_await std::move(finding);
  if (!session && session.error().code == Errc::not_found)
    co_return fail(Errc::not_found, "sandbox \"" + id.substr(0, 64) + "\" doesn't exist");
  co_return session;
}

std::vector<Route> e2b_sandbox_routes(const E2bParts& parts) {
  const std::string all = "/sandboxes";
  const std::string one = all + "/{id}";
  auto body = E2bBody::optional;
  std::vector<Route> routes;
  auto add = [&](const char* method, const std::string& path, const char* name, E2bHandle handle,
                 E2bBody with = E2bBody::none, Role least = Role::user) {
    routes.push_back(e2b_route(parts, method, path, name, handle, with, least));
  };
  add("POST", "/v2" + all, "e2bCreate", create_second, E2bBody::required);
  add("POST", all, "e2bCreateV1", create_first, E2bBody::required);
  add("GET", "/v2" + all, "e2bList", list_second, E2bBody::none, Role::viewer);
  add("GET", all, "e2bListV1", list_first, E2bBody::none, Role::viewer);
  add("GET", one, "e2bGet", get, E2bBody::none, Role::viewer);
  add("DELETE", one, "e2bKill", remove);
  add("POST", "/v2" + one + "/connect", "e2bConnect", connect_second, body);
  add("POST", one + "/connect", "e2bConnectV1", connect_first, body);
  add("POST", one + "/resume", "e2bResume", resume, body);
  add("POST", one + "/pause", "e2bPause", pause, body);
  add("POST", one + "/timeout", "e2bSetTimeout", set_timeout, E2bBody::required);
  add("POST", one + "/refreshes", "e2bRefresh", refresh, body);
  add("PUT", one + "/network", "e2bSetNetwork", set_network, body);
  return routes;
}

}  // namespace asr
