// Interpreters: run code, look after contexts, fetch what was made.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <deque>

#include "api/api.hpp"
#include "api/errors.hpp"
#include "api/file_transfer.hpp"
#include "api/sse.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

using Finding = asio::awaitable<Result<std::shared_ptr<Session>>>;

Finding find(ApiParts parts, CallPtr call, Access access) {
  return parts.sessions.find(call->caller, call->parts[0], access);
}

asio::awaitable<Result<std::shared_ptr<Context>>> find_context(ApiParts parts, CallPtr call,
                                                               Access access) {
  auto finding = find(parts, call, access);
  auto session = CO_TRY(co_await std::move(finding));
  co_return session->contexts().find(call->parts[1]);
}

// What a cell gives, on its way to somebody who may be slower.
struct Following {
  explicit Following(asio::any_io_executor executor) : changed(std::move(executor)) {}
  std::deque<std::pair<std::string, std::string>> events;
  std::optional<Result<json::object>> answer;
  Bell changed;
};

asio::awaitable<void> run_for(ApiParts parts, Caller caller, std::shared_ptr<Session> session,
                              CellRequest request, std::shared_ptr<Following> following) {
  auto listen = [following](std::string_view kind, const json::object& what) {
    following->events.emplace_back(kind, to_text(what));
    following->changed.ring();
  };
  auto executing =
      parts.sessions.execute(std::move(caller), std::move(session), std::move(request), listen);
  following->answer = co_await std::move(executing);
  following->changed.ring();
}

// As events while it runs. Who listens may be cut off: the cell is none the worse for it.
asio::awaitable<Result<Reply>> follow(ApiParts parts, CallPtr call,
                                      std::shared_ptr<Session> session, CellRequest request) {
  auto executor = co_await asio::this_coro::executor;
  auto following = std::make_shared<Following>(executor);
  request.somebody_answers = true;
  asio::co_spawn(executor, run_for(parts, call->caller, session, std::move(request), following),
                 asio::detached);
  auto opening = EventStream::open(call);
  auto stream = CO_TRY(co_await std::move(opening));
  for (;;) {
    while (!following->events.empty()) {
      auto [kind, data] = std::move(following->events.front());
      following->events.pop_front();
      auto sending = stream.send(std::move(kind), "", std::move(data));
      CO_TRY(co_await std::move(sending));
    }
    if (following->answer) break;
    co_await following->changed.wait(Bell::Clock::now() + kLookAgain);
    if (!co_await may_go_on(parts, call->caller, session)) co_return Reply::done();
    auto beating = stream.beat();
    CO_TRY(co_await std::move(beating));
  }
  Result<json::object>& answer = *following->answer;
  std::string last = to_text(answer ? *answer : json_of(answer.error(), call->caller.trace_id));
  auto sending = stream.send(answer ? "done" : "failed", "", std::move(last));
  CO_TRY(co_await std::move(sending));
  auto ending = stream.end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

asio::awaitable<Result<Reply>> execute(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CellRequest request = CO_TRY(cell_request_from(call->body));
  if (EventStream::is_wanted(call->head())) {
    auto following = follow(parts, call, session, std::move(request));
    co_return co_await std::move(following);
  }
  auto executing = parts.sessions.execute(call->caller, session, std::move(request));
  co_return Reply{200, CO_TRY(co_await std::move(executing)), false, {}};
}

// ---- contexts

asio::awaitable<Result<Reply>> list_contexts(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  json::array all;
  for (const auto& context : session->contexts().all()) all.push_back(context->describe());
  co_return Reply{200, json::object{{"contexts", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> make_context(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto text = [&](const char* name, const char* standard) {
    const json::value* value = call->body.if_contains(name);
    return std::string(value ? std::string_view(value->get_string()) : standard);
  };
  auto making = session->contexts().make(session->place_of_contexts(), text("language", "python"),
                                         text("cwd", ""));
  auto context = CO_TRY(co_await std::move(making));
  if (session->history()) {
    json::object step = context_step("create", context->id());
    step["language"] = context->language().name;
    if (std::string cwd = text("cwd", ""); !cwd.empty()) step["cwd"] = std::move(cwd);
    session->note(std::move(step));
  }
  co_return Reply{201, context->describe(), false, {}};
}

asio::awaitable<Result<Reply>> get_context(ApiParts parts, CallPtr call) {
  auto finding = find_context(parts, call, Access::look);
  auto context = CO_TRY(co_await std::move(finding));
  co_return Reply{200, context->describe(), false, {}};
}

asio::awaitable<Result<Reply>> remove_context(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(session->contexts().remove(call->parts[1]));
  if (session->history()) session->note(context_step("remove", call->parts[1]));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> restart_context(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto context = CO_TRY(session->contexts().find(call->parts[1]));
  auto restarting = context->restart();
  co_await std::move(restarting);
  if (session->history()) session->note(context_step("restart", context->id()));
  co_return Reply{200, context->describe(), false, {}};
}

asio::awaitable<Result<Reply>> interrupt_context(ApiParts parts, CallPtr call) {
  auto finding = find_context(parts, call, Access::use);
  auto context = CO_TRY(co_await std::move(finding));
  CO_TRY(context->interrupt());
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> answer_input(ApiParts parts, CallPtr call) {
  auto finding = find_context(parts, call, Access::use);
  auto context = CO_TRY(co_await std::move(finding));
  auto answering = context->answer(std::string(call->body.at("text").get_string()));
  CO_TRY(co_await std::move(answering));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> complete(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto asking = session->contexts().find(session->place_of_contexts(), call->parts[1], "");
  auto context = CO_TRY(co_await std::move(asking));
  auto sandbox = CO_TRY(session->sandbox());
  auto completing = context->complete(sandbox, std::string(call->body.at("text").get_string()));
  auto matches = CO_TRY(co_await std::move(completing));
  json::array names;
  for (const std::string& match : matches) names.emplace_back(repair_utf8(match));
  co_return Reply{200, json::object{{"matches", std::move(names)}}, false, {}};
}

// ---- artifacts

asio::awaitable<Result<Reply>> list_artifacts(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find_artifacts(call->caller, call->parts[0], Access::look);
  auto artifacts = CO_TRY(co_await std::move(finding));
  json::array all;
  for (const Artifact& artifact : CO_TRY(artifacts->list())) all.push_back(json_of(artifact));
  co_return Reply{200, json::object{{"artifacts", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> get_artifact(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find_artifacts(call->caller, call->parts[0], Access::look);
  auto artifacts = CO_TRY(co_await std::move(finding));
  Artifact artifact = CO_TRY(artifacts->find(call->parts[1]));
  UniqueFd file = CO_TRY(artifacts->open(artifact.id));
  auto sending = send_download(call, std::move(file), artifact.name);
  co_return co_await std::move(sending);
}

asio::awaitable<Result<Reply>> remove_artifact(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find_artifacts(call->caller, call->parts[0], Access::use);
  auto artifacts = CO_TRY(co_await std::move(finding));
  CO_TRY(artifacts->remove(call->parts[1]));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> interpreter_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "interpreters";
  const std::string contexts = "/api/sessions/{id}/contexts";
  const std::string context = contexts + "/{context}";
  const std::string artifacts = "/api/sessions/{id}/artifacts";
  std::vector<Route> routes;
  routes.push_back({"POST",
                    "/api/sessions/{id}/execute",
                    "executeCode",
                    tag,
                    "Run code in an interpreter that keeps its variables; with Accept: "
                    "text/event-stream as it goes",
                    with(execute),
                    {{200, "What it gave", "CellAnswer"},
                     {200, "Output, results and the answer as events", "", "text/event-stream"}},
                    "CellStart"});
  routes.push_back({"GET",
                    contexts,
                    "listContexts",
                    tag,
                    "The interpreters of a session",
                    with(list_contexts),
                    {{200, "The contexts", "ContextList"}}});
  Route making{"POST",
               contexts,
               "createContext",
               tag,
               "Another interpreter, with variables of its own",
               with(make_context),
               {{201, "The context", "Context"}},
               "ContextCreate"};
  making.body_optional = true;
  routes.push_back(std::move(making));
  routes.push_back({"GET",
                    context,
                    "getContext",
                    tag,
                    "One context",
                    with(get_context),
                    {{200, "The context", "Context"}}});
  routes.push_back({"DELETE",
                    context,
                    "removeContext",
                    tag,
                    "End an interpreter",
                    with(remove_context),
                    {{204, "It is gone"}}});
  routes.push_back({"POST",
                    context + "/restart",
                    "restartContext",
                    tag,
                    "Forget all variables",
                    with(restart_context),
                    {{200, "The context", "Context"}}});
  routes.push_back({"POST",
                    context + "/interrupt",
                    "interruptContext",
                    tag,
                    "End the cell that runs and keep the variables",
                    with(interrupt_context),
                    {{204, "It was asked to end"}}});
  routes.push_back({"POST",
                    context + "/input",
                    "answerInput",
                    tag,
                    "Answer input() of the cell that runs",
                    with(answer_input),
                    {{204, "Answered"}},
                    "TextBody"});
  routes.push_back({"POST",
                    context + "/complete",
                    "completeCode",
                    tag,
                    "Names that could stand at the end of a text",
                    with(complete),
                    {{200, "The text with each of them", "Completions"}},
                    "TextBody"});
  routes.push_back({"GET",
                    artifacts,
                    "listArtifacts",
                    tag,
                    "Figures and files that cells made; of a gone session what was kept",
                    with(list_artifacts),
                    {{200, "The artifacts", "ArtifactList"}}});
  routes.push_back({"GET",
                    artifacts + "/{artifact}",
                    "getArtifact",
                    tag,
                    "Its bytes",
                    with(get_artifact),
                    {{200, "The bytes", "", "application/octet-stream"}}});
  routes.push_back({"DELETE",
                    artifacts + "/{artifact}",
                    "removeArtifact",
                    tag,
                    "Remove an artifact",
                    with(remove_artifact),
                    {{204, "It is gone"}}});
  return routes;
}

}  // namespace asr
