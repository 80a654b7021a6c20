#include "engine/program_texts.hpp"

#include <signal.h>

#include "frozen/image.hpp"
#include "os/seqpacket.hpp"

namespace asr {

wire::Start request_for(const Command& command, const Limits& limits) {
  wire::Start request;
  request.argv = command.argv;
  for (const auto& [name, value] : command.env) request.env.push_back(name + "=" + value);
  request.cwd = command.cwd.empty() ? "/workspace" : command.cwd;
  request.user = command.user;
  request.want_stdin = command.stdin_mode == StdinMode::pipe && !command.terminal;
  request.both_ways = command.stdin_mode == StdinMode::both_ways && !command.terminal;
  if (command.terminal) {
    request.terminal = true;
    request.rows = command.terminal->rows;
    request.columns = command.terminal->columns;
  }
  request.wall_time = command.wall_time.value_or(limits.wall_time);
  request.cpu_time = command.cpu_time.value_or(limits.cpu_time);
  request.open_files = limits.open_files;
  request.effects = command.effects;
  if (command.frozen) request.layers = static_cast<std::uint8_t>(command.frozen->layers.size());
  return request;
}

Result<void> check_command(const Command& command) {
  if (command.argv.empty() || command.argv[0].empty())
    return fail(Errc::invalid, "no command to run");
  if (command.frozen && (!command.frozen->thaw || command.frozen->layers.empty() ||
                         command.frozen->layers.size() > frozen::kMostLayers))
    return fail(Errc::invalid, "no image to start from");
  std::size_t size = command.cwd.size();
  auto check_text = [&](const std::string& text) {
    size += text.size() + 8;
    return text.find('\0') == std::string::npos;
  };
  bool clean = check_text(command.cwd) && check_text(command.user);
  for (const std::string& argument : command.argv) clean = check_text(argument) && clean;
  for (const auto& [name, value] : command.env) {
    if (name.empty() || name.find('=') != std::string::npos)
      return fail(Errc::invalid, "environment variable with a bad name",
                  "names have no = and are not empty");
    clean = check_text(name) && check_text(value) && clean;
  }
  if (!clean) return fail(Errc::invalid, "the command holds a zero byte");
  constexpr std::size_t kMost = kMaxPacket - 4096;
  if (size > kMost)
    return fail(Errc::invalid,
                "arguments and environment are longer than " + std::to_string(kMost) + " bytes",
                "pass large data through stdin or a file");
  return {};
}

ExitStatus status_of(const wire::Ended& ended) {
  ExitStatus status;
  status.exit_code = ended.exit_code & 0xff;
  status.cpu_user = ended.cpu_user;
  status.cpu_system = ended.cpu_system;
  status.max_rss_bytes = ended.max_rss_bytes;
  status.start_errno = ended.start_errno;
  if (ended.signal > 0 && ended.signal < 65) {
    status.signal = ended.signal;
    status.exit_code = 128 + ended.signal;
    status.reason = ended.signal == SIGSYS ? EndReason::policy : EndReason::signaled;
  }
  if (ended.start_errno != 0) status.reason = EndReason::not_started;
  switch (ended.stopped) {
    case wire::Stopped::by_itself:
      break;
    case wire::Stopped::wall_time:
      status.reason = EndReason::wall_time;
      break;
    case wire::Stopped::cpu_time:
      status.reason = EndReason::cpu_time;
      break;
    case wire::Stopped::memory:
      status.reason = EndReason::out_of_memory;
      break;
  }
  return status;
}

std::string_view to_string(EndReason reason) noexcept {
  switch (reason) {
    case EndReason::exited:
      return "exited";
    case EndReason::signaled:
      return "signaled";
    case EndReason::out_of_memory:
      return "out_of_memory";
    case EndReason::wall_time:
      return "wall_time";
    case EndReason::cpu_time:
      return "cpu_time";
    case EndReason::output_limit:
      return "output_limit";
    case EndReason::policy:
      return "policy";
    case EndReason::not_started:
      return "not_started";
    case EndReason::sandbox_gone:
      return "sandbox_gone";
    case EndReason::lost:
      return "lost";
  }
  return "exited";
}

}  // namespace asr
