// Commands: run, list, look at, follow, feed, signal.
#include <signal.h>

#include "api/api.hpp"
#include "api/sse.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

using Detail = SessionCommand::Detail;

constexpr std::size_t kMostAtOnce = 256 * 1024;  // of output in one answer or event

asio::awaitable<Result<std::shared_ptr<SessionCommand>>> find(ApiParts parts, CallPtr call,
                                                              Access access) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], access);
  auto session = CO_TRY(co_await std::move(finding));
  co_return session->command(call->parts[1]);
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  json::array all;
  for (const auto& command : session->commands()) all.push_back(command->describe(Detail::summary));
  co_return Reply{200, json::object{{"commands", std::move(all)}}, false, {}};
}

asio::awaitable<Result<Reply>> get(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto command = CO_TRY(co_await std::move(finding));
  std::int64_t wait = CO_TRY(call->number("wait_s", 0, 0, 3600));
  auto until = Bell::Clock::now() + std::chrono::seconds(wait);
  co_await command->wait_for_end(until);
  co_return Reply{200, command->describe(Detail::with_output), false, {}};
}

enum class Greeting { none, command };  // whether the first event tells which command it is

asio::awaitable<Result<Reply>> follow(ApiParts parts, CallPtr call,
                                      std::shared_ptr<Session> session,
                                      std::shared_ptr<SessionCommand> command, std::uint64_t offset,
                                      Greeting greeting) {
  SessionCommand::Reader reader(command, offset);  // Nothing is lost to one who is slow.
  auto opening = EventStream::open(call);
  auto stream = CO_TRY(co_await std::move(opening));
  if (greeting == Greeting::command) {
    std::string first = to_text(command->describe(Detail::summary));
    auto sending = stream.send("command", "", std::move(first));
    CO_TRY(co_await std::move(sending));
  }
  for (;;) {
    bool running = command->is_running();
    auto pieces = command->output().read(offset, kMostAtOnce);
    for (const auto& piece : pieces) {
      json::object event = output_event(*command, piece);
      offset = piece.offset + piece.data.size();
      auto sending = stream.send("output", std::to_string(offset), to_text(event));
      CO_TRY(co_await std::move(sending));
      reader.advance(offset);
    }
    if (!pieces.empty()) continue;
    if (!running) break;
    co_await command->wait_for_change(Bell::Clock::now() + kLookAgain);
    session->touch();
    if (!co_await may_go_on(parts, call->caller, session)) break;
    auto beating = stream.beat();
    CO_TRY(co_await std::move(beating));
  }
  if (!command->is_running()) {
    std::string last = to_text(command->describe(Detail::summary));
    auto sending = stream.send("exit", std::to_string(offset), std::move(last));
    CO_TRY(co_await std::move(sending));
  }
  auto ending = stream.end();
  CO_TRY(co_await std::move(ending));
  co_return Reply::done();
}

// To its end, in the answer or as events while it runs; or only started.
asio::awaitable<Result<Reply>> run(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CommandRequest request = CO_TRY(command_request_from(call->body));
  bool as_events = EventStream::is_wanted(call->head());
  // Who listens may be cut off: the command is none the worse for it.
  if (as_events) request.background = true;
  bool background = request.background;
  auto starting = parts.sessions.start_command(call->caller, session, std::move(request));
  auto command = CO_TRY(co_await std::move(starting));
  Sessions::Hold hold(&parts.sessions, session);
  if (as_events) {
    auto following = follow(parts, call, session, command, 0, Greeting::command);
    co_return co_await std::move(following);
  }
  if (!background) co_await command->wait_for_end();
  Reply reply{background ? 202U : 200U, command->describe(Detail::with_output), false, {}};
  reply.headers.add("Location", "/api/sessions/" + session->id() + "/commands/" + command->id());
  co_return reply;
}

// As JSON at once, after some waiting if wanted; or as a stream of events to the end.
asio::awaitable<Result<Reply>> output(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto command = CO_TRY(session->command(call->parts[1]));
  std::int64_t from = CO_TRY(call->number("offset", 0, 0, INT64_MAX));
  std::int64_t wait = CO_TRY(call->number("wait_s", 0, 0, 300));
  auto offset = static_cast<std::uint64_t>(from);
  if (EventStream::is_wanted(call->head())) {
    auto last = EventStream::last_id(call->head());
    auto following = follow(parts, call, session, command,
                            last ? static_cast<std::uint64_t>(*last) : offset, Greeting::none);
    co_return co_await std::move(following);
  }
  auto until = Bell::Clock::now() + std::chrono::seconds(wait);
  while (command->is_running() && command->output().end() <= offset && Bell::Clock::now() < until)
    co_await command->wait_for_change(until);
  json::array pieces;
  std::uint64_t next = std::max(offset, command->output().begin());
  for (const auto& piece : command->output().read(offset, kMostAtOnce)) {
    pieces.push_back(output_event(*command, piece));
    next = piece.offset + piece.data.size();
  }
  json::object body{
      {"command_id", command->id()},
      {"status", command->describe(Detail::summary)["status"]},
      {"offset", offset},
      {"next_offset", std::min(next, std::max(offset, command->output().end()))},
      {"lost_bytes", command->output().begin() > offset ? command->output().begin() - offset : 0},
      {"complete", !command->is_running() && next >= command->output().end()},
      {"chunks", std::move(pieces)}};
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> feed(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto command = CO_TRY(co_await std::move(finding));
  std::string data;
  if (const json::value* text = call->body.if_contains("data")) data = text->get_string();
  if (const json::value* coded = call->body.if_contains("data_base64"))
    data = CO_TRY(from_base64(coded->get_string()));
  if (!data.empty()) {
    auto writing = command->write_stdin(std::move(data));
    CO_TRY(co_await std::move(writing));
  }
  if (const json::value* eof = call->body.if_contains("eof"); eof && eof->get_bool()) {
    auto closing = command->close_stdin();
    CO_TRY(co_await std::move(closing));
  }
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> send_signal(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto command = CO_TRY(session->command(call->parts[1]));
  int number = CO_TRY(signal_from(call->body.at("signal")));
  auto signalling = command->signal(number);
  CO_TRY(co_await std::move(signalling));
  if (session->history()) session->note(signal_step(command->id(), number));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> resize(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto command = CO_TRY(co_await std::move(finding));
  TerminalSize size{call->body.at("rows").to_number<std::uint16_t>(),
                    call->body.at("columns").to_number<std::uint16_t>()};
  auto resizing = command->resize(size);
  CO_TRY(co_await std::move(resizing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> processes(ApiParts parts, CallPtr call) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto sandbox = CO_TRY(session->sandbox());
  auto asking = sandbox->processes();
  std::vector<ProcessInfo> all = CO_TRY(co_await std::move(asking));
  json::array list;
  for (const ProcessInfo& process : all) {
    json::array argv;
    for (const std::string& word : process.argv) argv.emplace_back(repair_utf8(word));
    list.push_back(json::object{{"pid", process.pid},
                                {"parent", process.parent},
                                {"uid", process.uid},
                                {"state", std::string(1, process.state)},
                                {"cpu_ms", process.cpu.count()},
                                {"rss_bytes", process.rss_bytes},
                                {"argv", std::move(argv)}});
  }
  co_return Reply{200, json::object{{"processes", std::move(list)}}, false, {}};
}

}  // namespace

json::object output_event(const SessionCommand& command, const OutputLog::Piece& piece) {
  json::object event{{"command_id", command.id()},
                     {"stream", piece.stream == OutputChunk::Stream::out ? "stdout" : "stderr"},
                     {"offset", piece.offset}};
  put_bytes(event, "data", piece.data);
  return event;
}

Result<int> signal_from(const json::value& value) {
  if (value.is_number()) return value.to_number<int>();
  static const std::map<std::string_view, int> kNames{
      {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},  {"KILL", SIGKILL},
      {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},  {"CONT", SIGCONT},
      {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH}};
  std::string_view name(value.get_string());
  if (name.starts_with("SIG")) name.remove_prefix(3);
  auto found = kNames.find(name);
  if (found == kNames.end())
    return fail(Errc::invalid, "no signal is called \"" + std::string(name) + "\"",
                "write it as 15, \"TERM\" or \"SIGTERM\"");
  return found->second;
}

std::vector<Route> command_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "commands";
  const std::string all = "/api/sessions/{id}/commands";
  const std::string one = all + "/{command}";
  std::vector<Route> routes;
  routes.push_back(
      {"POST",
       all,
       "runCommand",
       tag,
       "Run a command: to its end, in the background, or with Accept: text/event-stream",
       with(run),
       {{200, "How it ended and what it wrote", "Command"},
        {200, "The command, its output and its end as events", "", "text/event-stream"},
        {202, "It runs in the background", "Command"}},
       "CommandStart"});
  routes.push_back({"GET",
                    all,
                    "listCommands",
                    tag,
                    "Those that run, and the last that ended",
                    with(list),
                    {{200, "The commands", "CommandList"}}});
  Route getting{"GET",
                one,
                "getCommand",
                tag,
                "One command with its output",
                with(get),
                {{200, "The command", "Command"}}};
  getting.parameters = {{"wait_s", "Wait so long for its end", "integer"}};
  routes.push_back(std::move(getting));
  Route reading{"GET",
                one + "/output",
                "getOutput",
                tag,
                "Its output from an offset on: as JSON, or to its end with Accept: "
                "text/event-stream",
                with(output),
                {{200, "Output", "Output"}, {200, "Output", "", "text/event-stream"}}};
  reading.parameters = {{"offset", "Where to begin", "integer"},
                        {"wait_s", "Wait so long for more", "integer"}};
  routes.push_back(std::move(reading));
  routes.push_back({"POST",
                    one + "/stdin",
                    "writeStdin",
                    tag,
                    "Write to its input",
                    with(feed),
                    {{204, "Written"}},
                    "Stdin"});
  routes.push_back({"POST",
                    one + "/signal",
                    "signalCommand",
                    tag,
                    "Send a signal to it and its children",
                    with(send_signal),
                    {{204, "Sent"}},
                    "Signal"});
  routes.push_back({"POST",
                    one + "/resize",
                    "resizeTerminal",
                    tag,
                    "Change its terminal's size",
                    with(resize),
                    {{204, "Changed"}},
                    "TerminalSize"});
  routes.push_back({"GET",
                    "/api/sessions/{id}/processes",
                    "listProcesses",
                    tag,
                    "All processes inside",
                    with(processes),
                    {{200, "The processes", "ProcessList"}}});
  return routes;
}

}  // namespace asr
