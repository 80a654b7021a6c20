// Routes that clients of other systems call, translated onto sessions and nothing more.
#include "api/api.hpp"

namespace asr {

namespace {

asio::awaitable<Result<Reply>> create(ApiParts parts, CallPtr call) {
  SessionRequest request = CO_TRY(session_request_from(call->body));
  auto creating = parts.sessions.create(call->caller, std::move(request));
  auto session = CO_TRY(co_await std::move(creating));
  json::object body{{"session_id", session->id()}, {"sandbox_id", session->id()}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> execute(ApiParts parts, CallPtr call) {
  std::string id(call->body.at("session_id").get_string());
  auto finding = parts.sessions.find(call->caller, std::move(id), Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  json::object wanted{{"command", call->body.at("command")}};
  if (const json::value* time = call->body.if_contains("timeout_s")) wanted["timeout_s"] = *time;
  CommandRequest request = CO_TRY(command_request_from(wanted));
  auto starting = parts.sessions.start_command(call->caller, session, std::move(request));
  auto command = CO_TRY(co_await std::move(starting));
  Sessions::Hold hold(&parts.sessions, session);
  co_await command->wait_for_end();
  // One text, as a terminal would have shown it.
  std::string text;
  for (const auto& piece : command->output().read(0, SIZE_MAX)) text += piece.data;
  json::object body{{"exit_code", command->status()->exit_code}};
  put_bytes(body, "output", text);
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> clean_up(ApiParts parts, CallPtr call) {
  std::string id(call->body.at("session_id").get_string());
  auto finding = parts.sessions.find(call->caller, std::move(id), Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto removing = parts.sessions.remove(call->caller, std::move(session));
  CO_TRY(co_await std::move(removing));
  co_return Reply{200, json::object{{"status", "ok"}}, false, {}};
}

}  // namespace

std::vector<Route> compat_routes(const ApiParts& parts) {
  const std::string tag = "other systems";
  std::vector<Route> routes;
  Route creation{"POST",
                 "/create_session",
                 "compatCreate",
                 tag,
                 "Make a session",
                 [parts](CallPtr call) { return create(parts, std::move(call)); },
                 {{200, "Its id", "CompatSession"}},
                 "SessionCreate"};
  creation.body_optional = true;
  routes.push_back(std::move(creation));
  routes.push_back({"POST",
                    "/execute",
                    "compatExecute",
                    tag,
                    "Run a shell command in a session",
                    [parts](CallPtr call) { return execute(parts, std::move(call)); },
                    {{200, "How it ended", "CompatResult"}},
                    "CompatExecute"});
  routes.push_back({"POST",
                    "/cleanup",
                    "compatCleanup",
                    tag,
                    "End a session",
                    [parts](CallPtr call) { return clean_up(parts, std::move(call)); },
                    {{200, "It is gone", "Health"}},
                    "CompatCleanup"});
  return routes;
}

}  // namespace asr
