#include "cli/remote_execution.hpp"

#include <signal.h>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <stop_token>

#include "session/bell.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 30s;
constexpr auto kSignalPatience = 3s;  // Who presses Ctrl-C and gets no answer wants to leave.
constexpr auto kAfterBrokenPipe = 1s;

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

Result<std::string> checked_text(const std::string& text) {
  if (is_utf8(text)) return text;
  return fail(Errc::invalid, "'" + repair_utf8(text) + "' is not UTF-8",
              "commands of a session go as JSON");
}

Result<json::object> request_for(const Command& command) {
  json::array argv;
  for (const std::string& word : command.argv) argv.emplace_back(TRY(checked_text(word)));
  json::object env;
  for (const auto& [name, value] : command.env)
    env[TRY(checked_text(name))] = TRY(checked_text(value));
  json::object request{{"argv", std::move(argv)}, {"env", std::move(env)}};
  request["user"] = TRY(checked_text(command.user));
  if (!command.cwd.empty()) request["cwd"] = TRY(checked_text(command.cwd));
  if (command.stdin_mode == StdinMode::pipe) request["stdin_open"] = true;
  if (command.terminal)
    request["pty"] = {{"rows", command.terminal->rows}, {"columns", command.terminal->columns}};
  if (command.wall_time) request["timeout_s"] = seconds(*command.wall_time);
  if (command.cpu_time) request["cpu_time_s"] = seconds(*command.cpu_time);
  if (command.output_bytes) request["output_bytes"] = *command.output_bytes;
  if (command.effects) request["effects"] = true;
  return request;
}

int number_at(const json::value& object, std::string_view name) {
  const json::value* value = object.is_object() ? object.get_object().if_contains(name) : nullptr;
  boost::system::error_code ec;
  int number = value && value->is_number() ? value->to_number<int>(ec) : 0;
  return ec ? 0 : number;
}

EndReason reason_from(const json::value& told) {
  std::string word = text_at(told, "status");
  if (text_at(told, "fault") == "platform") return EndReason::sandbox_gone;
  if (word == "signaled") return EndReason::signaled;
  if (word == "out_of_memory") return EndReason::out_of_memory;
  if (word == "output_limit") return EndReason::output_limit;
  if (word == "refused") return EndReason::policy;
  if (word == "timeout")
    return text_at(told, "timeout") == "cpu_time" ? EndReason::cpu_time : EndReason::wall_time;
  return text_at(told, "start_error").empty() ? EndReason::exited : EndReason::not_started;
}

}  // namespace

// Calls one after the other, on a thread of their own: they block.
struct RemoteExecution::Calls {
  explicit Calls(const Remote& like) : remote(like.another(stop.get_token())) {}
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() {
    stop.request_stop();
    thread.stop();
    thread.join();
  }

  // Who is cancelled leaves at once; the call goes on, its answer unheard.
  asio::awaitable<Result<json::value>> call(std::string method, std::string path, json::value body,
                                            Patience patience) {
    struct Answer {
      explicit Answer(asio::any_io_executor executor) : told(std::move(executor)) {}
      Bell told;
      std::optional<Result<json::value>> value;
    };
    auto executor = co_await asio::this_coro::executor;
    auto answer = std::make_shared<Answer>(executor);
    asio::post(thread, [this, executor, answer, method = std::move(method), path = std::move(path),
                        body = std::move(body), patience] {
      auto value = remote.insist(method, path, body, patience, Repeat::harmless);
      asio::post(executor, [answer, value = std::move(value)]() mutable {
        answer->value = std::move(value);
        answer->told.ring();
      });
    });
    while (!answer->value) {
      auto waiting = answer->told.wait();
      co_await std::move(waiting);
    }
    co_return *std::move(answer->value);
  }

  std::stop_source stop;
  Remote remote;
  asio::thread_pool thread{1};
};

RemoteExecution::RemoteExecution(const asio::any_io_executor& executor, const Remote& remote,
                                 std::string session, json::object request)
    : session_(std::move(session)),
      calls_(std::make_unique<Calls>(remote)),
      output_(executor, remote.another({}), session_, std::move(request)) {}

RemoteExecution::~RemoteExecution() = default;

asio::awaitable<Result<std::shared_ptr<RemoteExecution>>> RemoteExecution::start(
    std::string session, Command command) {
  json::object request = CO_TRY(request_for(command));
  Remote remote = CO_TRY(Remote::find());
  auto executor = co_await asio::this_coro::executor;
  std::shared_ptr<RemoteExecution> execution(
      new RemoteExecution(executor, remote, std::move(session), std::move(request)));
  auto starting = execution->output_.started();
  execution->id_ = CO_TRY(co_await std::move(starting));
  if (command.stdin_mode == StdinMode::closed && !command.terminal) co_return execution;
  // A key that comes twice can be seen, and a connection for each would be slow.
  Repeat repeat = command.terminal ? Repeat::harmless : Repeat::never;
  auto lost = [output = &execution->output_](Error error) { output->give_up(std::move(error)); };
  execution->input_ = std::make_unique<RemoteInput>(
      executor, remote.another({}), execution->path("/stdin"), repeat, std::move(lost));
  co_return execution;
}

std::string RemoteExecution::path(std::string_view rest) const {
  return session_path(session_, "/commands/" + percent_encode(id_) + std::string(rest));
}

asio::awaitable<Result<json::value>> RemoteExecution::describe() {
  return calls_->call("GET", path(), nullptr, Patience(kPatience));
}

asio::awaitable<Result<std::optional<OutputChunk>>> RemoteExecution::read() {
  return output_.read();
}

asio::awaitable<Result<void>> RemoteExecution::write_stdin(std::string data) {
  if (!input_) co_return fail(Errc::conflict, "stdin is closed");
  auto writing = input_->write(std::move(data));
  co_return co_await std::move(writing);
}

asio::awaitable<Result<void>> RemoteExecution::send_descriptor(UniqueFd) {
  co_return fail(Errc::unsupported, "descriptors do not travel");
}

asio::awaitable<Result<void>> RemoteExecution::close_stdin() {
  if (!input_) co_return Result<void>();
  auto closing = input_->close();
  co_return co_await std::move(closing);
}

// The program's pipe ends at the server, which keeps reading. So it is told by the signal, and one
// that does not heed it is ended.
asio::awaitable<Result<void>> RemoteExecution::close_output(OutputChunk::Stream stream) {
  output_.drop(stream);
  auto telling = signal(SIGPIPE);
  CO_TRY(co_await std::move(telling));
  auto ending = output_.ends_within(kAfterBrokenPipe);
  if (co_await std::move(ending)) co_return Result<void>();
  auto killing = signal(SIGKILL);
  co_return co_await std::move(killing);
}

asio::awaitable<Result<void>> RemoteExecution::signal(int number) {
  json::object request{{"signal", number}};
  auto calling =
      calls_->call("POST", path("/signal"), std::move(request), Patience(kSignalPatience));
  CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteExecution::resize(TerminalSize size) {
  json::object request{{"rows", size.rows}, {"columns", size.columns}};
  auto calling =
      calls_->call("POST", path("/resize"), std::move(request), Patience(kSignalPatience));
  CO_TRY(co_await std::move(calling));
  co_return Result<void>();
}

asio::awaitable<Result<ExitStatus>> RemoteExecution::wait() {
  auto ending = output_.ended();
  json::value told = CO_TRY(co_await std::move(ending));
  ExitStatus status;
  status.reason = reason_from(told);
  status.exit_code = number_at(told, "exit_code");
  status.signal = number_at(told, "signal");
  co_return status;
}

asio::awaitable<Result<void>> RemoteExecution::keep(std::string) {
  co_return fail(Errc::unsupported, "a server keeps its commands by itself");
}

}  // namespace asr
