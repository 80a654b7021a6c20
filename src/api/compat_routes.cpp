// Routes that clients of other systems call, translated onto sessions and nothing more.
#include "api/api.hpp"
#include "session/history_steps.hpp"
#include "session/initial_files.hpp"

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

asio::awaitable<Result<Reply>> execute_code(ApiParts parts, CallPtr call) {
  std::string id(call->body.at("session_id").get_string());
  auto finding = parts.sessions.find(call->caller, std::move(id), Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CellRequest request = CO_TRY(cell_request_from(call->body));
  auto executing = parts.sessions.execute(call->caller, session, std::move(request));
  json::object answer = CO_TRY(co_await std::move(executing));
  json::object body;
  for (const char* name : {"stdout", "stderr", "results", "artifacts", "error"})
    body[name] = answer.at(name);
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> list_files(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto sandbox = CO_TRY(session->sandbox());
  std::string folder = call->head().parameter("path").value_or("/workspace");
  auto listing = sandbox->list(folder);
  DirectoryPage page = CO_TRY(co_await std::move(listing));
  json::array files;
  for (const FileInfo& info : page.entries) {
    json::object file{{"type", info.type == FileType::directory ? "directory" : "file"},
                      {"size", info.size}};
    put_bytes(file, "name", info.name);
    put_bytes(file, "path", folder + (folder.ends_with('/') ? "" : "/") + info.name);
    files.push_back(std::move(file));
  }
  co_return Reply{200, json::object{{"files", std::move(files)}}, false, {}};
}

asio::awaitable<Result<Reply>> write_file(ApiParts parts, CallPtr call) {
  std::string id(call->body.at("session_id").get_string());
  auto finding = parts.sessions.find(call->caller, std::move(id), Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  json::object file = call->body;
  file.erase("session_id");
  CellRequest request = CO_TRY(
      cell_request_from({{"code", ""}, {"files", json::array{json::value(std::move(file))}}}));
  auto sandbox = CO_TRY(session->sandbox());
  std::string path = request.files[0].path;
  std::size_t size = request.files[0].content.size();
  json::array about = session->history() ? about_files(request.files) : json::array();
  auto furnishing = put_files(sandbox, std::move(request.files));
  CO_TRY(co_await std::move(furnishing));
  for (json::value& each : about) {
    json::object step = small_step("file", "write");
    for (auto& [name, value] : each.get_object()) step[name] = std::move(value);
    session->note(std::move(step));
  }
  co_return Reply{200, json::object{{"path", path}, {"size", size}}, false, {}};
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
  routes.push_back({"POST",
                    "/api/e2b/execute",
                    "compatExecuteCode",
                    tag,
                    "Run code in a session's interpreter",
                    [parts](CallPtr call) { return execute_code(parts, std::move(call)); },
                    {{200, "What it gave", "CompatCellAnswer"}},
                    "CompatCell"});
  Route listing{"GET",
                "/api/e2b/files/{id}",
                "compatListFiles",
                tag,
                "Files of a session's workspace",
                [parts](CallPtr call) { return list_files(parts, std::move(call)); },
                {{200, "The files", "CompatFiles"}}};
  listing.parameters = {{"path", "Another folder"}};
  routes.push_back(std::move(listing));
  routes.push_back({"POST",
                    "/api/e2b/files",
                    "compatWriteFile",
                    tag,
                    "Write a file of a session",
                    [parts](CallPtr call) { return write_file(parts, std::move(call)); },
                    {{200, "Written", "CompatWritten"}},
                    "CompatFile"});
  return routes;
}

}  // namespace asr
