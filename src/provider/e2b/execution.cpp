#include "provider/e2b/execution.hpp"

#include <signal.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/id.hpp"
#include "base/scope_exit.hpp"
#include "engine/label.hpp"
#include "provider/e2b/run.hpp"
#include "provider/e2b/scripts.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Stream = OutputChunk::Stream;

namespace {

constexpr std::size_t kInputPiece = 64 << 10;
constexpr int kEndTries = 10;
constexpr auto kEndPause = 2s;
constexpr auto kInputTime = 600s;  // A program that does not read holds its writer up.

class RemoteExecution final : public Execution {
 public:
  explicit RemoteExecution(RunPtr run) : run_(std::move(run)) {}
  RemoteExecution(const RemoteExecution&) = delete;
  RemoteExecution& operator=(const RemoteExecution&) = delete;
  ~RemoteExecution() override {
    run_->dropped = true;  // It stays kept: a server that ends drops all of them.
    if (run_->stream) run_->stream->cancel();
    run_->changed.ring();
  }

  std::int32_t pid() const noexcept override { return run_->pid; }

  asio::awaitable<Result<std::optional<OutputChunk>>> read() override {
    auto run = run_;
    while (run->ahead.empty()) {
      if (run->status) co_return std::nullopt;
      co_await run->changed.wait();
    }
    OutputChunk chunk = std::move(run->ahead.front());
    run->ahead.pop_front();
    run->ahead_bytes -= chunk.data.size();
    run->changed.ring();
    co_return chunk;
  }

  asio::awaitable<Result<void>> write_stdin(std::string data) override {
    auto run = run_;
    if (!run->has_stdin) co_return fail(Errc::conflict, "the program has no input");
    while (run->writing) co_await run->changed.wait();
    run->writing = true;
    ScopeExit done([&] {
      run->writing = false;
      run->changed.ring();
    });
    for (std::size_t at = 0; at < data.size(); at += kInputPiece) {
      if (run->status) co_return fail(Errc::conflict, "the program has ended");
      json::object body = run->selector();
      body["input"] = json::object{{run->terminal ? "pty" : "stdin",
                                    base64(std::string_view(data).substr(at, kInputPiece))}};
      auto asking = ask(run->core, "process.Process/SendInput", std::move(body), run->user,
                        Repeat::if_unsent, kInputTime);
      auto sent = co_await std::move(asking);
      if (!sent && sent.error().code == Errc::not_found)
        co_return fail(Errc::conflict, "the program has ended");
      CO_TRY(std::move(sent));
    }
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> send_descriptor(UniqueFd) override {
    co_return fail(Errc::unsupported, "not supported by this provider: descriptors");
  }

  asio::awaitable<Result<void>> close_stdin() override {
    auto run = run_;
    if (run->terminal) {  // What people type for it.
      auto writing = write_stdin("\x04");
      co_return co_await std::move(writing);
    }
    while (run->writing) co_await run->changed.wait();
    if (!std::exchange(run->has_stdin, false)) co_return Result<void>();
    auto asking = ask(run->core, "process.Process/CloseStdin", run->selector(), run->user);
    auto closed = co_await std::move(asking);
    if (!closed && closed.error().code != Errc::not_found) co_return fail(closed.error());
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> close_output(Stream stream) override {
    run_->closed.insert(stream);
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> signal(int number) override {
    if (run_->status) co_return fail(Errc::conflict, "the program has ended");
    auto run = run_;
    auto signalling = signal_tree(run->core, run->pid, number);
    co_return co_await std::move(signalling);
  }

  asio::awaitable<Result<void>> resize(TerminalSize size) override {
    auto run = run_;
    if (!run->terminal) co_return fail(Errc::invalid, "the program has no terminal");
    json::object body = run->selector();
    body["pty"] = {{"size", {{"cols", size.columns}, {"rows", size.rows}}}};
    auto asking = ask(run->core, "process.Process/Update", std::move(body), run->user);
    CO_TRY(co_await std::move(asking));
    co_return Result<void>();
  }

  asio::awaitable<Result<ExitStatus>> wait() override {
    auto run = run_;
    while (!run->status) {
      if (!run->ahead.empty()) {  // Who waits for the end instead of reading wants no output.
        run->nobody_reads = true;
        run->changed.ring();
      }
      co_await run->changed.wait();
    }
    co_return *run->status;
  }

  // An interpreter's stream cannot be taken up where it was: its variables end with the server.
  asio::awaitable<Result<void>> keep(std::string label) override {
    if (run_->both_ways)
      co_return fail(Errc::unsupported, "interpreters of this provider end with the server");
    if (run_->status) co_return fail(Errc::conflict, "the program has ended");
    CO_TRY(check_label(label));
    CO_TRY(run_->core->kept.add(run_->tag, label));
    run_->label.set(std::move(label));
    co_return Result<void>();
  }
  std::string label() const override { return run_->label.get(); }

 private:
  RunPtr run_;
};

std::unique_ptr<Execution> execution_of(const RunPtr& run) {
  asio::co_spawn(run->core->remote->executor(), follow(run), asio::detached);
  return std::make_unique<RemoteExecution>(run);
}

bool is_number(const std::string& user) {
  return !user.empty() &&
         std::all_of(user.begin(), user.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The command in words of the protocol.
json::object start_message(const Run& run, const Command& command,
                           std::chrono::milliseconds cpu_time) {
  json::array words{"-c", kLaunch, "sh", run.nonce};
  auto seconds = std::chrono::ceil<std::chrono::seconds>(cpu_time).count();
  words.emplace_back(seconds > 0 ? std::to_string(seconds) : "");
  words.emplace_back(seconds > 0 ? std::to_string(seconds + 1) : "");
  words.emplace_back(command.cwd.empty() ? "/workspace" : command.cwd);
  if (is_number(command.user)) {  // The protocol knows users by name alone.
    words.emplace_back("setpriv");
    words.emplace_back("--reuid=" + command.user);
    words.emplace_back("--regid=" + command.user);
    for (std::string_view word : {"--clear-groups", "--"}) words.emplace_back(word);
  }
  if (run.both_ways)
    for (std::string_view word : {"python3", "-I", "-u", "-c"}) words.emplace_back(word);
  if (run.both_ways) words.emplace_back(kBothWays);
  for (const std::string& word : command.argv) words.emplace_back(word);
  json::object env;
  for (const auto& [name, value] : command.env) env[name] = value;
  json::object message{
      {"process",
       json::object{
           {"cmd", "/bin/sh"}, {"args", std::move(words)}, {"envs", std::move(env)}, {"cwd", "/"}}},
      {"tag", run.tag}};
  if (command.terminal)
    message["pty"] = json::object{{"size", json::object{{"cols", command.terminal->columns},
                                                        {"rows", command.terminal->rows}}}};
  else
    message["stdin"] = run.has_stdin;
  return message;
}

Result<void> check_words(const Command& command) {
  auto fits = [](const std::string& text) {
    return is_utf8(text) && text.find('\0') == std::string::npos;
  };
  for (const std::string& word : command.argv)
    if (!fits(word))
      return fail(Errc::unsupported, "not supported by this provider: words that are not UTF-8");
  for (const auto& [name, value] : command.env)
    if (!fits(name) || !fits(value))
      return fail(Errc::unsupported, "not supported by this provider: words that are not UTF-8");
  return {};
}

}  // namespace

asio::awaitable<Result<void>> signal_tree(CorePtr core, std::int32_t pid, int number) {
  auto running = run_helper(core,
                            {"/bin/sh", "-c", std::string(kSignalTree), "sh",
                             std::to_string(number), std::to_string(pid)},
                            "root");
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

namespace {

// Nobody but its tag knows a program whose start was not confirmed: it is looked for, and ended.
asio::awaitable<void> end_unconfirmed(CorePtr core, std::string tag) {
  asio::steady_timer timer(core->remote->executor());
  for (int attempt = 0; attempt < kEndTries && core->state != SandboxState::gone; ++attempt) {
    auto asking = ask(core, "process.Process/List", json::object(), "");
    auto answer = co_await std::move(asking);
    auto processes = answer ? processes_in(*answer) : fail(answer.error());
    bool done = processes.has_value();
    std::vector<RemoteProcess> all;
    if (done) all = std::move(*processes);
    for (const RemoteProcess& process : all) {
      if (process.tag != tag) continue;
      auto killing = signal_tree(core, process.pid, SIGKILL);
      auto killed = co_await std::move(killing);
      done = killed.has_value();
    }
    if (done) co_return;
    timer.expires_after(kEndPause);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

// The first word of a program that has begun.
asio::awaitable<Result<std::int32_t>> begin_program(RunPtr run, json::object message) {
  CorePtr core = run->core;
  auto opening =
      core->remote->stream(core->place, "process.Process/Start", std::move(message), run->user);
  auto stream = co_await std::move(opening);
  if (!stream) {
    auto looking = Core::look(core, stream.error());
    co_return fail(co_await std::move(looking));
  }
  run->stream = std::move(*stream);
  auto reading = run->stream->next();
  auto first = co_await std::move(reading);
  if (!first) {
    auto looking = Core::look(core, first.error());
    co_return fail(co_await std::move(looking));
  }
  auto event = *first ? process_event_in(**first) : Result<ProcessEvent>(ProcessEvent());
  if (!event) co_return fail(event.error());
  if (event->kind != ProcessEvent::Kind::start)
    co_return fail(Errc::provider, "the provider does not say that the program has started");
  co_return event->pid;
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<Execution>>> start_program(CorePtr core, Command command,
                                                                  Limits limits, Unconfirmed lost) {
  CO_TRY(core->check_ready());
  if (command.argv.empty() || command.argv[0].empty())
    co_return fail(Errc::invalid, "there is nothing to run");
  if (command.frozen)
    co_return fail(Errc::unsupported, "not supported by this provider: images of programs");
  CO_TRY(check_words(command));
  auto run = std::make_shared<Run>(core);
  run->tag = "asr-" + random_name(20);
  // Begins with what programs do not begin with: theirs is held back while it may be this.
  run->nonce =
      "\x1e"
      "agent-sandbox cannot start it " +
      random_name(20);
  run->user = is_number(command.user) ? "root" : command.user;
  run->terminal = command.terminal.has_value();
  run->both_ways = command.stdin_mode == StdinMode::both_ways;
  run->has_stdin = run->terminal || command.stdin_mode != StdinMode::closed;
  run->most_output = command.output_bytes.value_or(limits.output_bytes);
  run->overflow = command.overflow;
  auto cpu_time = command.cpu_time.value_or(limits.cpu_time);
  run->cpu_limited = cpu_time.count() > 0;
  json::object message = start_message(*run, command, cpu_time);
  auto beginning = begin_program(run, std::move(message));
  auto pid = co_await std::move(beginning);
  if (!pid) {
    if (lost == Unconfirmed::is_ended && pid.error().code == Errc::provider)
      asio::co_spawn(core->remote->executor(), end_unconfirmed(core, run->tag), asio::detached);
    co_return fail(pid.error());
  }
  run->pid = *pid;
  run->began = Clock::now();
  auto wall_time = command.wall_time.value_or(limits.wall_time);
  if (wall_time.count() > 0)
    asio::co_spawn(core->remote->executor(), watch_time(run, wall_time), asio::detached);
  co_return execution_of(run);
}

std::unique_ptr<Execution> take_up_program(CorePtr core, RemoteProcess process, std::string label) {
  auto run = std::make_shared<Run>(core);
  run->tag = process.tag;
  run->pid = process.pid;
  run->has_stdin = true;
  run->label.set(std::move(label));
  run->overflow = OutputOverflow::truncate;
  auto begin = [](RunPtr of) -> asio::awaitable<void> {
    auto connecting = reconnect(of);
    if (co_await std::move(connecting)) {
      auto following = follow(of);
      co_return co_await std::move(following);
    }
    ExitStatus lost;
    lost.reason = EndReason::lost;
    finish(*of, lost);
  };
  asio::co_spawn(core->remote->executor(), begin(run), asio::detached);
  return std::make_unique<RemoteExecution>(run);
}

}  // namespace asr::e2b
