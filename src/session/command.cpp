#include "session/command.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.hpp"
#include "session/effects_json.hpp"

namespace asr {

namespace {

double millis(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// Whose doing the end was; nothing for a program that went well.
std::optional<Fault> fault_of(const ExitStatus& status) {
  switch (status.reason) {
    case EndReason::exited:
    case EndReason::signaled:
    case EndReason::not_started:
      return status.ok() ? std::nullopt : std::optional(Fault::program);
    case EndReason::out_of_memory:
    case EndReason::wall_time:
    case EndReason::cpu_time:
    case EndReason::output_limit:
      return Fault::limit;
    case EndReason::policy:
      return Fault::policy;
    default:
      return Fault::platform;
  }
}

}  // namespace

json::object usage_of(const ExitStatus& status) {
  return {{"wall_ms", millis(status.wall)},
          {"cpu_user_ms", millis(status.cpu_user)},
          {"cpu_system_ms", millis(status.cpu_system)},
          {"max_rss_bytes", status.max_rss_bytes},
          {"oom_kills", status.oom_kills}};
}

std::string_view status_word(EndReason reason) noexcept {
  switch (reason) {
    case EndReason::out_of_memory:
      return "out_of_memory";
    case EndReason::wall_time:
    case EndReason::cpu_time:
      return "timeout";
    case EndReason::output_limit:
      return "output_limit";
    case EndReason::policy:
      return "refused";
    case EndReason::exited:
    case EndReason::not_started:
      return "exited";
    default:
      return "signaled";
  }
}

SessionCommand::SessionCommand(asio::any_io_executor executor, std::uint64_t number,
                               CommandRequest request, std::size_t most_output,
                               std::shared_ptr<CommandJournal> journal)
    : executor_(std::move(executor)),
      number_(number),
      id_("c" + std::to_string(number)),
      request_(std::move(request)),
      most_output_(most_output),
      journal_(std::move(journal)),
      output_(most_output),
      changed_(executor_) {}

SessionCommand::SessionCommand(asio::any_io_executor executor, JournaledCommand journaled,
                               std::size_t most_output, std::shared_ptr<CommandJournal> journal)
    : SessionCommand(std::move(executor), journaled.number, CommandRequest(), most_output,
                     std::move(journal)) {
  output_ = std::move(journaled.output);
  status_ = journaled.status;
  const json::object& about = journaled.about;
  if (const json::value* words = about.if_contains("argv"); words && words->is_array())
    for (const json::value& word : words->get_array())
      if (word.is_string()) request_.command.argv.emplace_back(word.get_string());
  if (request_.command.argv.empty()) request_.command.argv.emplace_back("?");
  auto is_set = [&](const char* name) {
    const json::value* value = about.if_contains(name);
    return value && value->is_bool() && value->get_bool();
  };
  request_.background = is_set("background");
  if (is_set("pty")) request_.command.terminal.emplace();
  if (const json::value* time = about.if_contains("started_ms"); time && time->is_int64())
    started_us_ = time->get_int64() * 1000;
  auto text_in = [&](const char* name) {
    const json::value* value = about.if_contains(name);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  request_.command.cwd = text_in("cwd");
  request_.tag = text_in("tag");
  if (std::string user = text_in("user"); !user.empty()) request_.command.user = std::move(user);
  if (const json::value* names = about.if_contains("env"); names && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string()) request_.env_names.emplace_back(name.get_string());
  request_.history = !is_set("no_history");
}

// Not its variables' values, not its input: there may be secrets in them.
json::object SessionCommand::about() const {
  json::array words;
  for (const std::string& word : request_.command.argv) words.emplace_back(repair_utf8(word));
  json::object about{{"argv", std::move(words)},
                     {"background", request_.background},
                     {"pty", request_.command.terminal.has_value()},
                     {"started_ms", started_us_ / 1000}};
  if (!request_.command.cwd.empty()) about["cwd"] = repair_utf8(request_.command.cwd);
  if (request_.command.user != "user") about["user"] = repair_utf8(request_.command.user);
  json::array names;
  for (const std::string& name : request_.env_names) names.emplace_back(repair_utf8(name));
  if (!names.empty()) about["env"] = std::move(names);
  if (!request_.tag.empty()) about["tag"] = repair_utf8(request_.tag);
  if (!request_.history) about["no_history"] = true;
  return about;
}

void SessionCommand::write_to(CommandJournal& journal) const {
  journal.began(number_, about(), output_.begin());
  for (const OutputLog::Piece& piece : output_.pieces())
    journal.wrote(number_, piece.stream, piece.data);
  if (status_) journal.ended(number_, *status_);
}

void SessionCommand::write_down() {
  in_journal_ = true;
  journal_->gather();
  write_to(*journal_);
  journal_->flush();
}

void SessionCommand::count_connections(std::function<Effects::Connections()> count) {
  count_connections_ = std::move(count);
  connections_ = count_connections_();
}

asio::awaitable<Result<void>> SessionCommand::start(std::shared_ptr<Sandbox> sandbox,
                                                    std::function<void()> ended) {
  started_us_ = now_us();
  began_ = Bell::Clock::now();
  auto starting = sandbox->start(request_.command);
  execution_ = CO_TRY(co_await std::move(starting));
  pid_ = execution_->pid();
  if (request_.background) {
    journal_->began(number_, about());
    auto keeping = keep(execution_);
    co_await std::move(keeping);
  } else {
    in_journal_ = false;  // Until it has lasted, or ended.
  }
  auto running = execution_;  // One that has ended already is dropped by whoever follows it.
  asio::co_spawn(executor_, follow(std::move(ended)), asio::detached);
  if (!request_.stdin_data.empty()) {
    // A program that does not read its input, or is gone already, is not our failure.
    std::string data = std::exchange(request_.stdin_data, {});
    stdin_bytes_ += data.size();
    bool close = !request_.stdin_open;
    auto feed = [](std::shared_ptr<Execution> execution, std::string bytes,
                   bool and_close) -> asio::awaitable<void> {
      (void)co_await execution->write_stdin(std::move(bytes));
      if (and_close) (void)co_await execution->close_stdin();
    };
    asio::co_spawn(executor_, feed(std::move(running), std::move(data), close), asio::detached);
  }
  co_return Result<void>();
}

asio::awaitable<void> SessionCommand::keep_because_it_lasts() {
  write_down();
  return keep(execution_);
}

// The command must not fail for it. Where sandboxes end with the server there is nothing to tell.
asio::awaitable<void> SessionCommand::keep(std::shared_ptr<Execution> execution) {
  auto self = shared_from_this();
  auto keeping = execution->keep(id_);
  auto kept = co_await std::move(keeping);
  if (kept || !is_running()) co_return;
  Errc code = kept.error().code;
  if (code != Errc::unsupported && code != Errc::conflict && code != Errc::gone)
    journal_->regret(kept.error());
}

void SessionCommand::go_on(std::shared_ptr<Execution> execution, std::function<void()> ended) {
  execution_ = std::move(execution);
  pid_ = execution_->pid();
  asio::co_spawn(executor_, follow(std::move(ended)), asio::detached);
}

void SessionCommand::lose() {
  ExitStatus lost;
  lost.reason = EndReason::lost;
  lost.exit_code = 137;
  lost.signal = 9;
  status_ = lost;
  journal_->ended(number_, lost);
}

asio::awaitable<void> SessionCommand::follow(std::function<void()> ended) {
  auto self = shared_from_this();
  auto execution = execution_;
  for (;;) {
    auto reading = execution->read();
    auto chunk = co_await std::move(reading);
    if (!chunk || !*chunk) break;
    // First where it survives, then where it can be seen.
    if (in_journal_) journal_->wrote(number_, (*chunk)->stream, (*chunk)->data);
    output_.append((*chunk)->stream, std::move((*chunk)->data));
    journal_->settle();
    changed_.ring();
    while (is_somebody_behind()) co_await changed_.wait();
  }
  auto waiting = execution->wait();
  auto status = co_await std::move(waiting);
  ExitStatus lost;
  lost.reason = EndReason::sandbox_gone;
  lost.exit_code = 137;
  lost.signal = 9;
  status_ = status ? *status : lost;
  ended_at_ = Bell::Clock::now();
  if (count_connections_) {
    connections_ = difference(connections_, count_connections_());
  }
  if (in_journal_)
    journal_->ended(number_, *status_);
  else
    write_down();
  journal_->settle();
  execution_.reset();  // Nobody need keep it any more.
  changed_.ring();
  asio::post(executor_, std::move(ended));  // Those who wait for the command come first.
}

bool SessionCommand::is_somebody_behind() const {
  for (const auto& [reader, offset] : readers_)
    if (offset + most_output_ / 2 < output_.end()) return true;
  return false;
}

SessionCommand::Reader::Reader(std::shared_ptr<SessionCommand> command, std::uint64_t offset)
    : command_(std::move(command)) {
  command_->readers_[this] = std::max(offset, command_->output_.begin());
}

SessionCommand::Reader::~Reader() {
  command_->readers_.erase(this);
  command_->changed_.ring();
}

void SessionCommand::Reader::advance(std::uint64_t offset) {
  bool was_behind = command_->is_somebody_behind();
  command_->readers_[this] = offset;
  command_->heard_ = std::max(command_->heard_, offset);
  if (was_behind && !command_->is_somebody_behind()) command_->changed_.ring();
}

asio::awaitable<void> SessionCommand::wait_for_end(Bell::Clock::time_point deadline) {
  while (is_running() && Bell::Clock::now() < deadline) co_await changed_.wait(deadline);
}

Result<void> SessionCommand::check_running() const {
  if (is_running() && execution_) return {};
  return fail(Errc::conflict, "the command has ended");
}

asio::awaitable<Result<void>> SessionCommand::write_stdin(std::string data) {
  CO_TRY(check_running());
  auto execution = execution_;
  stdin_bytes_ += data.size();
  co_return co_await execution->write_stdin(std::move(data));
}

asio::awaitable<Result<void>> SessionCommand::close_stdin() {
  CO_TRY(check_running());
  auto execution = execution_;
  co_return co_await execution->close_stdin();
}

asio::awaitable<Result<void>> SessionCommand::signal(int number) {
  CO_TRY(check_running());
  auto execution = execution_;
  co_return co_await execution->signal(number);
}

asio::awaitable<Result<void>> SessionCommand::resize(TerminalSize size) {
  CO_TRY(check_running());
  if (!request_.command.terminal) co_return fail(Errc::invalid, "the command has no terminal");
  auto execution = execution_;
  co_return co_await execution->resize(size);
}

json::object SessionCommand::describe(Detail detail) const {
  json::object out;
  out["command_id"] = id_;
  out["status"] = status_ ? status_word(status_->reason) : "running";
  out["exit_code"] = status_ ? json::value(status_->exit_code) : json::value(nullptr);
  out["signal"] =
      status_ && status_->signal != 0 ? json::value(status_->signal) : json::value(nullptr);
  out["started_at"] = iso_time(started_us_ / 1000);
  out["background"] = request_.background;
  out["pty"] = request_.command.terminal.has_value();
  json::array words;
  for (const std::string& word : request_.command.argv) words.emplace_back(repair_utf8(word));
  out["argv"] = std::move(words);
  out["output_bytes"] = output_.end();
  if (undoable_) out["undoable"] = *undoable_;
  if (status_) {
    if (auto fault = fault_of(*status_)) out["fault"] = to_string(*fault);
    if (status_->reason == EndReason::cpu_time) out["timeout"] = "cpu_time";
    if (status_->reason == EndReason::wall_time) out["timeout"] = "wall_time";
    if (status_->start_errno != 0) {
      out["start_error"] = errno_error(status_->start_errno, request_.command.argv[0]).what;
    }
    out["usage"] = usage_of(*status_);
    if (status_->effects) {
      std::optional<Effects::Connections> counted;
      if (count_connections_) counted = connections_;
      out["effects"] = json_of(*status_->effects, counted);
    }
  } else {
    out["usage"] = nullptr;
  }
  if (detail == Detail::summary) return out;
  std::uint64_t dropped = output_.begin() + (status_ ? status_->truncated_bytes : 0);
  out["truncated"] = dropped > 0;
  if (dropped > 0) out["truncated_bytes"] = dropped;
  put_bytes(out, "stdout", output_.text_of(OutputChunk::Stream::out));
  put_bytes(out, "stderr", output_.text_of(OutputChunk::Stream::err));
  return out;
}

}  // namespace asr
