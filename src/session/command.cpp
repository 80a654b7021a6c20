#include "session/command.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"

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

json::object usage_of(const ExitStatus& status) {
  return {{"wall_ms", millis(status.wall)},
          {"cpu_user_ms", millis(status.cpu_user)},
          {"cpu_system_ms", millis(status.cpu_system)},
          {"max_rss_bytes", status.max_rss_bytes},
          {"oom_kills", status.oom_kills}};
}

}  // namespace

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

SessionCommand::SessionCommand(asio::any_io_executor executor, std::string id,
                               CommandRequest request, std::size_t most_output)
    : executor_(std::move(executor)),
      id_(std::move(id)),
      request_(std::move(request)),
      most_output_(most_output),
      output_(most_output),
      changed_(executor_) {}

asio::awaitable<Result<void>> SessionCommand::start(std::shared_ptr<Sandbox> sandbox,
                                                    std::function<void()> ended) {
  started_ms_ = now_ms();
  auto starting = sandbox->start(request_.command);
  execution_ = CO_TRY(co_await std::move(starting));
  asio::co_spawn(executor_, follow(std::move(ended)), asio::detached);
  if (!request_.stdin_data.empty()) {
    // A program that does not read its input, or is gone already, is not our failure.
    auto self = shared_from_this();
    std::string data = std::exchange(request_.stdin_data, {});
    bool close = !request_.stdin_open;
    auto feed = [](std::shared_ptr<SessionCommand> command, std::string bytes,
                   bool and_close) -> asio::awaitable<void> {
      (void)co_await command->execution_->write_stdin(std::move(bytes));
      if (and_close) (void)co_await command->execution_->close_stdin();
    };
    asio::co_spawn(executor_, feed(self, std::move(data), close), asio::detached);
  }
  co_return Result<void>();
}

asio::awaitable<void> SessionCommand::follow(std::function<void()> ended) {
  auto self = shared_from_this();
  for (;;) {
    auto chunk = co_await execution_->read();
    if (!chunk || !*chunk) break;
    output_.append((*chunk)->stream, std::move((*chunk)->data));
    changed_.ring();
    while (is_somebody_behind()) co_await changed_.wait();
  }
  auto status = co_await execution_->wait();
  ExitStatus lost;
  lost.reason = EndReason::sandbox_gone;
  lost.exit_code = 137;
  lost.signal = 9;
  status_ = status ? *status : lost;
  changed_.ring();
  ended();
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
  out["started_at"] = iso_time(started_ms_);
  out["background"] = request_.background;
  out["pty"] = request_.command.terminal.has_value();
  json::array words;
  for (const std::string& word : request_.command.argv) words.emplace_back(repair_utf8(word));
  out["argv"] = std::move(words);
  out["output_bytes"] = output_.end();
  if (status_) {
    if (auto fault = fault_of(*status_)) out["fault"] = to_string(*fault);
    if (status_->reason == EndReason::cpu_time) out["timeout"] = "cpu_time";
    if (status_->reason == EndReason::wall_time) out["timeout"] = "wall_time";
    if (status_->start_errno != 0) {
      out["start_error"] = errno_error(status_->start_errno, request_.command.argv[0]).what;
    }
    out["usage"] = usage_of(*status_);
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
