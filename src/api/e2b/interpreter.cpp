// E2B's code interpreter: cells and contexts of a session.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "api/e2b/cell_events.hpp"
#include "api/e2b/envd.hpp"
#include "base/clock.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

constexpr std::chrono::seconds kKeepalive{5};
constexpr std::chrono::milliseconds kLookAfterClient{250};
constexpr std::chrono::milliseconds kHoldHead{20};
constexpr std::size_t kMostWrite = 256 * 1024;

// A cell on its way, and somebody who listens to it.
struct Listening {
  explicit Listening(asio::any_io_executor executor) : changed(std::move(executor)) {}
  std::string lines;  // not sent yet
  bool running = false;
  bool left = false;  // Nobody listens any more.
  bool told_error = false;
  std::optional<Result<json::object>> answer;
  Bell changed;
};

std::string iso_now() { return iso_time(now_ms()); }

void hear(Listening& listening, std::string_view kind, const json::object& what) {
  if (listening.left) return;
  if (kind == "stdout" || kind == "stderr") {
    json::object fields = what;
    fields["timestamp"] = iso_now();
    listening.lines += cell_line(kind, std::move(fields));
  } else if (kind == "result") {
    listening.lines += cell_line("result", result_fields(what));
  } else if (kind == "error") {
    listening.told_error = true;
    listening.lines += cell_line("error", what);
  }
  listening.changed.ring();
}

asio::awaitable<void> run_cell(EnvdCallPtr call, CellRequest request,
                               std::shared_ptr<Listening> listening) {
  auto listen = [listening](std::string_view kind, const json::object& what) {
    hear(*listening, kind, what);
  };
  request.admit = [listening] { return listening->running = !listening->left; };
  auto executing =
      call->parts.sessions.execute(call->caller, call->session, std::move(request), listen);
  auto answer = co_await std::move(executing);
  listening->answer = std::move(answer);
  listening->changed.ring();
}

// An end that the interpreter did not tell itself.
json::object told_end(const json::object& answer, const json::object& error) {
  auto text = [&](const char* name) { return error.at(name); };
  std::string_view name = error.at("name").get_string();
  bool ended = name == "InterpreterEnded";
  bool restarted = ended && answer.at("status") == "interrupted";
  return {{"name", restarted ? json::value("ContextRestarting")
                   : ended   ? json::value("UnexpectedEndOfExecution")
                             : text("name")},
          {"value", text("value")},
          {"traceback", text("traceback")}};
}

void add_last_lines(Listening& listening) {
  const Result<json::object>& answer = *listening.answer;
  if (!answer) {
    listening.lines += cell_line("error", {{"name", "ExecutionAborted"},
                                           {"value", answer.error().what},
                                           {"traceback", answer.error().what}});
  } else {
    const json::value& error = answer->at("error");
    if (error.is_object() && !listening.told_error)
      listening.lines += cell_line("error", told_end(*answer, error.get_object()));
    listening.lines +=
        cell_line("number_of_executions", {{"execution_count", answer->at("execution_count")}});
  }
  listening.lines += cell_line("end_of_execution");
}

asio::awaitable<Result<void>> tell_cell(EnvdCallPtr call, std::shared_ptr<Listening> listening) {
  Exchange* out = call->exchange;
  Response head;
  head.headers.add("Content-Type", "application/x-ndjson");
  head.headers.add("X-Accel-Buffering", "no");
  out->hold_head();
  auto beginning = out->begin(std::move(head), std::nullopt);
  CO_TRY(co_await std::move(beginning));
  auto last_write = Bell::Clock::now();
  // Most cells are over by then, and all of the answer leaves at once. The client's time for the
  // others begins with the head.
  if (!listening->answer && listening->lines.empty())
    co_await listening->changed.wait(last_write + kHoldHead);
  if (!listening->answer && listening->lines.empty()) {
    auto writing = out->write("");
    CO_TRY(co_await std::move(writing));
  }
  while (!listening->answer) {
    if (listening->lines.empty() && Bell::Clock::now() - last_write >= kKeepalive)
      listening->lines = cell_line("keepalive");
    if (!listening->lines.empty()) {
      auto writing = out->write(std::exchange(listening->lines, {}));
      CO_TRY(co_await std::move(writing));
      last_write = Bell::Clock::now();
      continue;
    }
    co_await listening->changed.wait(Bell::Clock::now() + kLookAfterClient);
    if (!out->is_client_there() || !call->is_awake()) co_return fail(Errc::gone, "it is over");
  }
  // A sandbox that is gone has no last words: the connection breaks off.
  if (!call->is_awake()) co_return fail(Errc::gone, "it is over");
  add_last_lines(*listening);
  while (listening->lines.size() > kMostWrite) {
    auto writing = out->write(listening->lines.substr(0, kMostWrite));
    CO_TRY(co_await std::move(writing));
    listening->lines.erase(0, kMostWrite);
  }
  auto writing = out->write_last(std::move(listening->lines));
  co_return co_await std::move(writing);
}

Answering answer_text(Exchange* exchange, unsigned status, std::string text) {
  Response response;
  response.status = status;
  response.headers.add("Content-Type", "text/plain; charset=utf-8");
  response.body = std::move(text);
  auto responding = exchange->respond(std::move(response));
  co_return co_await std::move(responding);
}

Answering answer_text(Exchange* exchange, const Error& error) {
  unsigned status = error.code == Errc::not_found                                    ? 404
                    : error.code == Errc::exhausted                                  ? 429
                    : error.code == Errc::gone                                       ? 502
                    : error.code == Errc::invalid || error.code == Errc::unsupported ? 400
                                                                                     : 500;
  std::string text = error.what;
  if (!error.hint.empty()) text += " (" + error.hint + ")";
  return answer_text(exchange, status, std::move(text));
}

Contexts::Place place_of(const EnvdCall& call, std::string cwd = "/home/user") {
  return {call.session->sandbox(), e2b_environment(*call.session), std::move(cwd)};
}

asio::awaitable<Result<std::shared_ptr<Context>>> find_context(EnvdCallPtr call, std::string id,
                                                               std::string language) {
  Contexts& contexts = call->session->contexts();
  if (!id.empty()) {
    auto found = contexts.find(id);
    if (!found) co_return fail(Errc::not_found, "Context " + id + " not found");
    co_return found;
  }
  std::transform(language.begin(), language.end(), language.begin(),
                 [](unsigned char c) { return c < 128 ? std::tolower(c) : c; });
  auto finding = contexts.find(place_of(*call), "", std::move(language));
  co_return co_await std::move(finding);
}

asio::awaitable<Result<json::object>> read_json(EnvdCallPtr call) {
  auto reading = call->exchange->read_body(kMostRpcMessage);
  std::string body = CO_TRY(co_await std::move(reading));
  co_return message_from(body);
}

// What of the request is to be run, and where.
asio::awaitable<Result<CellRequest>> cell_of(EnvdCallPtr call, std::shared_ptr<Context>* context) {
  auto reading = read_json(call);
  json::object message = CO_TRY(co_await std::move(reading));
  CellRequest request;
  request.code = CO_TRY(text_field(message, "code"));
  std::string id = CO_TRY(text_field(message, "context_id"));
  std::string language = CO_TRY(text_field(message, "language"));
  if (!id.empty() && !language.empty())
    co_return fail(Errc::invalid, "Only one of context_id or language can be provided");
  if (const json::value* env = field_of(message, "env_vars")) {
    if (!env->is_object()) co_return fail(Errc::invalid, "env_vars must be an object");
    for (const auto& [name, value] : env->get_object()) {
      if (!value.is_string()) co_return fail(Errc::invalid, "variables must be texts");
      request.env[std::string(name)] = std::string(value.get_string());
    }
    request.env_for_it_alone = true;
  }
  auto finding = find_context(call, std::move(id), std::move(language));
  *context = CO_TRY(co_await std::move(finding));
  request.context = (*context)->id();
  request.timeout = std::chrono::milliseconds(0);  // The client ends it by leaving.
  co_return request;
}

Answering execute(EnvdCallPtr call) {
  std::shared_ptr<Context> context;
  auto reading = cell_of(call, &context);
  auto request = co_await std::move(reading);
  if (!request) {
    auto failing = answer_text(call->exchange, request.error());
    co_return co_await std::move(failing);
  }
  auto listening = std::make_shared<Listening>(call->parts.executor);
  // The exchange is not the cell's: it may live longer.
  auto own = std::make_shared<EnvdCall>(*call);
  own->exchange = nullptr;
  asio::co_spawn(call->parts.executor, run_cell(own, *std::move(request), listening),
                 asio::detached);
  auto telling = tell_cell(call, listening);
  auto told = co_await std::move(telling);
  listening->left = true;
  // Whoever asked has gone: the next one must not wait for it.
  if (!listening->answer && listening->running && call->is_awake()) (void)context->interrupt();
  (void)told;
  co_return Result<void>();
}

json::object describe(const Context& context) {
  json::object all = context.describe();
  return {{"id", all["context_id"]}, {"language", all["language"]}, {"cwd", all["cwd"]}};
}

// Those that always are, then others in the order in which they were made.
Answering list_contexts(EnvdCallPtr call) {
  for (const char* language : {"python", "javascript"}) {
    auto finding = find_context(call, "", language);
    (void)co_await std::move(finding);
  }
  auto all = call->session->contexts().all();
  auto rank = [](const std::shared_ptr<Context>& context) {
    const std::string& id = context->id();
    std::size_t group = id == "python" ? 0 : id == "javascript" ? 1 : id[0] != 'x' ? 2 : 3;
    return std::tuple(group, id.size(), id);
  };
  std::sort(all.begin(), all.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  json::array contexts;
  for (const auto& context : all) contexts.push_back(describe(*context));
  auto answering = answer_json(call->exchange, std::move(contexts));
  co_return co_await std::move(answering);
}

asio::awaitable<Result<std::shared_ptr<Context>>> make_context(EnvdCallPtr call) {
  auto reading = read_json(call);
  json::object message = CO_TRY(co_await std::move(reading));
  std::string language = CO_TRY(text_field(message, "language"));
  std::string cwd = CO_TRY(text_field(message, "cwd"));
  if (language.empty()) language = "python";
  cwd = call->resolve(cwd);
  auto asking = call->sandbox->list(cwd, 0, 1, call->user);
  auto there = co_await std::move(asking);
  if (!there && there.error().code != Errc::denied)
    co_return fail(Errc::invalid, "cwd '" + cwd + "' does not exist");
  auto making = call->session->contexts().make(place_of(*call), language, cwd);
  auto context = CO_TRY(co_await std::move(making));
  if (call->session->history()) {
    json::object step = context_step("create", context->id());
    step["language"] = context->language().name;
    step["cwd"] = repair_utf8(cwd);
    call->session->note(std::move(step));
  }
  co_return context;
}

Answering create_context(EnvdCallPtr call) {
  auto making = make_context(call);
  auto context = co_await std::move(making);
  auto answering = context ? answer_json(call->exchange, describe(**context))
                           : answer_text(call->exchange, context.error());
  co_return co_await std::move(answering);
}

// DELETE /contexts/{id}, POST /contexts/{id}/restart
Answering change_context(EnvdCallPtr call, std::string id, bool restart) {
  auto found = call->session->contexts().find(id);
  if (!found) {
    auto failing = answer_text(call->exchange, 404, "Context " + id + " not found");
    co_return co_await std::move(failing);
  }
  if (restart) {
    auto restarting = (*found)->restart();
    co_await std::move(restarting);
  } else {
    CO_TRY(call->session->contexts().remove(id));
  }
  if (call->session->history())
    call->session->note(context_step(restart ? "restart" : "remove", id));
  auto answering = answer_json(call->exchange, nullptr);
  co_return co_await std::move(answering);
}

}  // namespace

Answering serve_interpreter(EnvdCallPtr call) {
  const std::string& method = call->head().method;
  std::string_view path = call->head().path;
  constexpr std::string_view kContexts = "/contexts";
  constexpr std::string_view kRestart = "/restart";
  if (path == "/health" && (method == "GET" || method == "HEAD"))
    return answer_json(call->exchange, "OK");
  if (path == "/execute" && method == "POST") return execute(std::move(call));
  if (path == kContexts && method == "GET") return list_contexts(std::move(call));
  if (path == kContexts && method == "POST") return create_context(std::move(call));
  if (path.starts_with("/contexts/")) {
    std::string id(path.substr(kContexts.size() + 1));
    bool restart = method == "POST" && id.ends_with(kRestart);
    if (restart) id.resize(id.size() - kRestart.size());
    if (restart || method == "DELETE")
      return change_context(std::move(call), std::move(id), restart);
  }
  return answer_text(call->exchange, 404, "there is nothing at this address");
}

}  // namespace asr
