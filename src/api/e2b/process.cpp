// process.Process: commands and terminals of a sandbox.
#include <signal.h>

#include "api/e2b/envd.hpp"
#include "api/e2b/process_events.hpp"
#include "api/e2b/process_follow.hpp"
#include "api/e2b/rpc.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

using CommandPtr = std::shared_ptr<SessionCommand>;

constexpr std::chrono::seconds kRemembered{30};  // how long one can be joined that has ended

Error no_process(const std::string& which) {
  return Error(Errc::not_found, "process with " + which + " not found");
}

// The newest of that number: they come again.
Result<CommandPtr> find(const EnvdCall& call, const json::object& message) {
  const json::value* selector = field_of(message, "process");
  if (!selector || !selector->is_object()) return fail(Errc::invalid, "the process is not named");
  std::string tag = TRY(text_field(selector->get_object(), "tag"));
  std::int64_t pid = TRY(int_field(selector->get_object(), "pid", 0));
  std::vector<CommandPtr> all = call.session->commands();
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    bool is_it = tag.empty() ? pid > 0 && (*at)->pid() == pid : (*at)->request().tag == tag;
    if (is_it) return *at;
  }
  return fail(no_process(tag.empty() ? "pid " + std::to_string(pid) : "tag " + tag));
}

Result<CommandPtr> find_running(const EnvdCall& call, const json::object& message) {
  CommandPtr command = TRY(find(call, message));
  if (command->is_running()) return command;
  return fail(no_process("pid " + std::to_string(command->pid())));
}

Result<std::optional<TerminalSize>> size_in(const json::object& message) {
  const json::value* pty = field_of(message, "pty");
  if (!pty || !pty->is_object()) return std::optional<TerminalSize>();
  const json::value* size = field_of(pty->get_object(), "size");
  TerminalSize wanted;
  if (size && size->is_object()) {
    std::int64_t rows = TRY(int_field(size->get_object(), "rows", wanted.rows));
    std::int64_t columns = TRY(int_field(size->get_object(), "cols", wanted.columns));
    if (rows < 1 || rows > 10000 || columns < 1 || columns > 10000)
      return fail(Errc::invalid, "a terminal has 1 to 10000 rows and columns");
    wanted = {static_cast<std::uint16_t>(rows), static_cast<std::uint16_t>(columns)};
  }
  return std::optional<TerminalSize>(wanted);
}

// What is asked for, but for the folder.
Result<CommandRequest> request_from(const EnvdCall& call, const json::object& message) {
  const json::value* process = field_of(message, "process");
  if (!process || !process->is_object()) return fail(Errc::invalid, "there is no process to start");
  const json::object& config = process->get_object();
  CommandRequest request;
  Command& command = request.command;
  command.argv.push_back(TRY(text_field(config, "cmd")));
  if (command.argv[0].empty()) return fail(Errc::invalid, "there is no program to start");
  if (const json::value* args = field_of(config, "args")) {
    if (!args->is_array()) return fail(Errc::invalid, "the field args must be a list");
    for (const json::value& arg : args->get_array()) {
      if (!arg.is_string()) return fail(Errc::invalid, "the field args must be a list of texts");
      command.argv.emplace_back(arg.get_string());
    }
  }
  command.env = e2b_environment(*call.session);
  if (const json::value* envs = field_of(config, "envs")) {
    if (!envs->is_object()) return fail(Errc::invalid, "the field envs must be an object");
    for (const auto& [name, value] : envs->get_object()) {
      if (!value.is_string()) return fail(Errc::invalid, "variables must be texts");
      command.env[std::string(name)] = std::string(value.get_string());
      request.env_names.emplace_back(name);
    }
  }
  command.user = call.user;
  const std::string& place = call.session->request().cwd;  // of its template
  command.cwd = place.empty() ? call.home : place;
  command.terminal = TRY(size_in(message));
  bool with_stdin = TRY(bool_field(message, "stdin", true));
  command.stdin_mode = with_stdin && !command.terminal ? StdinMode::pipe : StdinMode::closed;
  request.stdin_open = with_stdin || command.terminal;
  request.tag = TRY(text_field(message, "tag"));
  if (request.tag.size() > 256) return fail(Errc::invalid, "the tag is longer than 256 bytes");
  // Whoever reads slowly slows the program down; nothing else ends it but the caller's own limit.
  command.output_bytes = 0;
  command.cpu_time = std::chrono::milliseconds(0);
  auto limit = TRY(connect_timeout(call.head().headers.get("connect-timeout-ms")));
  command.wall_time = time_to_be_told(limit);  // The SDKs stop listening at the limit itself.
  return request;
}

// "cwd '…' does not exist", as E2B says it.
asio::awaitable<Result<void>> enter_folder(EnvdCallPtr call, const json::object* message,
                                           Command* command) {
  std::string wanted = CO_TRY(text_field(field_of(*message, "process")->get_object(), "cwd"));
  if (wanted.empty()) co_return Result<void>();
  command->cwd = call->resolve(wanted);
  auto asking = call->sandbox->list(command->cwd, 0, 1, call->user);
  auto there = co_await std::move(asking);
  if (!there && there.error().code == Errc::denied)
    co_return Result<void>();  // Perhaps not to be read.
  if (!there && there.error().code == Errc::gone) co_return fail(there.error());
  if (!there) co_return fail(Errc::invalid, "cwd '" + command->cwd + "' does not exist");
  co_return Result<void>();
}

asio::awaitable<Result<CommandPtr>> begin_command(EnvdCallPtr call, RpcStream* stream) {
  auto reading = stream->read_message();
  json::object message = CO_TRY(co_await std::move(reading));
  CommandRequest request = CO_TRY(request_from(*call, message));
  auto entering = enter_folder(call, &message, &request.command);
  CO_TRY(co_await std::move(entering));
  auto starting =
      call->parts.sessions.start_command(call->caller, call->session, std::move(request));
  co_return co_await std::move(starting);
}

Answering start(EnvdCallPtr call) {
  RpcStream stream(call->exchange);
  auto beginning = begin_command(call, &stream);
  auto command = co_await std::move(beginning);
  if (!command) {
    if (command.error().code == Errc::gone) co_return Result<void>();
    auto finishing = stream.finish(connect_error(command.error()));
    co_return co_await std::move(finishing);
  }
  auto following = follow_process(call, *command, 0);
  co_return co_await std::move(following);
}

// Goes on where the last listener was: nothing is missed, nothing comes twice.
asio::awaitable<Result<CommandPtr>> join(EnvdCallPtr call, RpcStream* stream) {
  auto reading = stream->read_message();
  json::object message = CO_TRY(co_await std::move(reading));
  CommandPtr command = CO_TRY(find(*call, message));
  if (!command->is_running() && command->ended_at() + kRemembered < Bell::Clock::now())
    co_return fail(no_process("pid " + std::to_string(command->pid())));
  co_return command;
}

Answering connect(EnvdCallPtr call) {
  RpcStream stream(call->exchange);
  auto joining = join(call, &stream);
  auto command = co_await std::move(joining);
  if (!command) {
    auto finishing = stream.finish(connect_error(command.error()));
    co_return co_await std::move(finishing);
  }
  auto following = follow_process(call, *command, (*command)->heard());
  co_return co_await std::move(following);
}

asio::awaitable<Result<Unary>> list(EnvdCallPtr call, json::object) {
  json::array processes;
  for (const CommandPtr& command : call->session->commands())
    if (command->is_running()) processes.push_back(process_info(*command));
  co_return Unary{{{"processes", std::move(processes)}}, {}};
}

asio::awaitable<Result<Unary>> update(EnvdCallPtr call, json::object message) {
  CommandPtr command = CO_TRY(find_running(*call, message));
  auto size = CO_TRY(size_in(message));
  if (size) {
    if (!command->request().command.terminal)
      co_return Unary::failed(ConnectCode::failed_precondition, "the process has no terminal");
    auto resizing = command->resize(*size);
    CO_TRY(co_await std::move(resizing));
  }
  co_return Unary{};
}

// `input` goes to the one that has it: a terminal, or a pipe.
asio::awaitable<Result<Unary>> give_input(CommandPtr command, json::object message) {
  const json::value* input = field_of(message, "input");
  if (!input || !input->is_object()) co_return fail(Errc::invalid, "there is no input");
  bool to_terminal = field_of(input->get_object(), "pty") != nullptr;
  bool has_terminal = command->request().command.terminal.has_value();
  if (to_terminal != has_terminal)
    co_return Unary::failed(ConnectCode::failed_precondition,
                            has_terminal ? "the process has a terminal: send its input there"
                                         : "the process has no terminal");
  if (!has_terminal && command->request().command.stdin_mode == StdinMode::closed)
    co_return Unary::failed(ConnectCode::internal, "stdin of the process is not open");
  std::string data = CO_TRY(bytes_field(input->get_object(), to_terminal ? "pty" : "stdin"));
  auto writing = command->write_stdin(std::move(data));
  auto written = co_await std::move(writing);
  if (!written) co_return Unary::failed(ConnectCode::internal, written.error().what);
  co_return Unary{};
}

asio::awaitable<Result<Unary>> send_input(EnvdCallPtr call, json::object message) {
  CommandPtr command = CO_TRY(find_running(*call, message));
  auto giving = give_input(command, std::move(message));
  co_return co_await std::move(giving);
}

asio::awaitable<Result<Unary>> send_signal(EnvdCallPtr call, json::object message) {
  CommandPtr command = CO_TRY(find_running(*call, message));
  const json::value* wanted = field_of(message, "signal");
  int number = 0;
  if (wanted && wanted->is_string())
    number = wanted->get_string() == "SIGNAL_SIGKILL"   ? SIGKILL
             : wanted->get_string() == "SIGNAL_SIGTERM" ? SIGTERM
                                                        : 0;
  else if (wanted && wanted->is_int64())
    number = wanted->get_int64() == SIGKILL   ? SIGKILL
             : wanted->get_int64() == SIGTERM ? SIGTERM
                                              : 0;
  if (number == 0)
    co_return Unary::failed(ConnectCode::unimplemented, "only SIGTERM and SIGKILL can be sent");
  auto signalling = command->signal(number);
  if (auto sent = co_await std::move(signalling); !sent)
    co_return fail(no_process("pid " + std::to_string(command->pid())));
  if (call->session->history()) call->session->note(signal_step(command->id(), number));
  co_return Unary{};
}

asio::awaitable<Result<Unary>> close_stdin(EnvdCallPtr call, json::object message) {
  CommandPtr command = CO_TRY(find_running(*call, message));
  if (command->request().command.terminal)
    co_return Unary::failed(ConnectCode::failed_precondition,
                            "a terminal is not closed: send it Ctrl-D");
  if (command->request().command.stdin_mode == StdinMode::closed)
    co_return Unary::failed(ConnectCode::internal, "stdin of the process is not open");
  auto closing = command->close_stdin();
  CO_TRY(co_await std::move(closing));
  co_return Unary{};
}

// Envelope after envelope, until the client has no more.
asio::awaitable<Result<Unary>> take_stream(EnvdCallPtr call) {
  EnvelopeReader reader(kMostRpcMessage);
  std::string block(64 * 1024, '\0');
  CommandPtr command;
  for (;;) {
    auto reading = call->exchange->read_some(block);
    std::size_t n = CO_TRY(co_await std::move(reading));
    if (n == 0) co_return Unary{};
    reader.feed({block.data(), n});
    while (auto envelope = CO_TRY(reader.next())) {
      json::object message = CO_TRY(message_from(envelope->payload));
      const json::value* start = field_of(message, "start");
      const json::value* data = field_of(message, "data");
      if (start && start->is_object()) {
        command = CO_TRY(find_running(*call, start->get_object()));
      } else if (data && data->is_object()) {
        if (!command) co_return fail(Errc::invalid, "the process was not named first");
        auto giving = give_input(command, data->get_object());
        Unary given = CO_TRY(co_await std::move(giving));
        if (given.error) co_return given;
      }
    }
  }
}

Answering stream_input(EnvdCallPtr call) {
  auto taking = take_stream(call);
  auto taken = co_await std::move(taking);
  RpcStream out(call->exchange);
  std::optional<ConnectError> error;
  if (!taken)
    error = connect_error(taken.error());
  else
    error = std::move(taken->error);
  if (!error) out.add(json::object());
  auto finishing = out.finish(std::move(error));
  co_return co_await std::move(finishing);
}

}  // namespace

Answering serve_process(EnvdCallPtr call, std::string method) {
  static const StreamCalls kStreams{
      {"Start", start}, {"Connect", connect}, {"StreamInput", stream_input}};
  static const UnaryCalls kCalls{{"List", list},
                                 {"Update", update},
                                 {"SendInput", send_input},
                                 {"SendSignal", send_signal},
                                 {"CloseStdin", close_stdin}};
  return serve_method(std::move(call), method, kStreams, kCalls);
}

}  // namespace asr
