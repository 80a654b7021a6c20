#include "api/e2b/process_follow.hpp"

#include "api/e2b/process_events.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostAtOnce = 256 * 1024;  // of output between two looks at the connection
constexpr std::size_t kMostData = 32 * 1024;     // in one event
constexpr std::chrono::seconds kLookAfterClient{5};

void add_output(RpcStream& out, const OutputLog::Piece& piece, bool terminal) {
  std::string_view left = piece.data;
  while (!left.empty()) {
    OutputLog::Piece part{0, piece.stream, std::string(left.substr(0, kMostData))};
    left.remove_prefix(part.data.size());
    out.add(data_event(part, terminal));
  }
}

std::optional<ConnectError> why_not_ended(const SessionCommand& command) {
  const ExitStatus& status = *command.status();
  if (status.reason == EndReason::wall_time)
    return ConnectError{ConnectCode::deadline_exceeded, "the process took longer than it may"};
  if (status.reason == EndReason::not_started) {
    Error error = errno_error(status.start_errno, "start " + command.request().command.argv[0]);
    return ConnectError{error.code == Errc::exhausted ? ConnectCode::resource_exhausted
                                                      : ConnectCode::invalid_argument,
                        error.what};
  }
  return std::nullopt;
}

}  // namespace

Answering follow_process(EnvdCallPtr call, std::shared_ptr<SessionCommand> command,
                         std::uint64_t offset) {
  Sessions::Hold hold(&call->parts.sessions, call->session);
  SessionCommand::Reader reader(command, offset);  // A slow listener slows the program down.
  RpcStream out(call->exchange);
  bool terminal = command->request().command.terminal.has_value();
  auto keepalive = keepalive_interval(call->head().headers.get("keepalive-ping-interval"));
  auto quiet_since = Bell::Clock::now();
  out.add(start_event(command->pid()));
  for (;;) {
    bool running = command->is_running();
    auto pieces = command->output().read(offset, kMostAtOnce);
    for (const auto& piece : pieces) {
      add_output(out, piece, terminal);
      offset = piece.offset + piece.data.size();
    }
    if (!running && pieces.empty()) break;
    auto now = Bell::Clock::now();
    if (out.waiting() == 0 && now - quiet_since >= keepalive) out.add(keepalive_event());
    // What is sent to nobody would be lost to whoever comes next.
    if (!call->exchange->is_client_there()) co_return Result<void>();
    if (out.waiting() > 0) {
      auto flushing = out.flush();
      CO_TRY(co_await std::move(flushing));
      reader.advance(offset);
      quiet_since = now;
      continue;
    }
    co_await command->wait_for_change(std::min(quiet_since + keepalive, now + kLookAfterClient));
    if (!call->is_awake()) co_return Result<void>();
  }
  EndReason reason = command->status()->reason;
  if (!call->is_awake() || reason == EndReason::sandbox_gone || reason == EndReason::lost)
    co_return Result<void>();
  auto error = why_not_ended(*command);
  if (!error) out.add(end_event(*command->status()));
  auto finishing = out.finish(std::move(error));
  co_return co_await std::move(finishing);
}

}  // namespace asr
