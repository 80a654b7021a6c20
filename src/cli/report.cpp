#include "cli/report.hpp"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>

#include "cli/commands.hpp"
#include "launch/plan.hpp"
#include "net/json.hpp"
#include "session/session.hpp"

namespace asr {

namespace {

int exit_code_for(const Error& error) {
  return error.fault() == Fault::caller ? kUsageError : kPlatformError;
}

}  // namespace

double millis(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

int complain(const Error& error) {
  std::fprintf(stderr, "agent-sandbox: %s\n", error.what.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "  %s\n", error.hint.c_str());
  return exit_code_for(error);
}

json::object json_of(const Error& error) {
  return {{"code", to_string(error.code)},
          {"fault", to_string(error.fault())},
          {"message", repair_utf8(error.what)},
          {"hint", repair_utf8(error.hint)}};
}

int print_json_error(const Error& error) {
  std::printf("%s\n", json::serialize(json::object{{"error", json_of(error)}}).c_str());
  return exit_code_for(error);
}

std::string json_result(const RunResult& result, const Sandbox& sandbox, const Usage& usage,
                        const json::object& more) {
  const ExitStatus& status = result.status;
  json::object object;
  object["sandbox"] = sandbox.id().text;
  object["reason"] = to_string(status.reason);
  object["exit_code"] = status.exit_code;
  object["signal"] = status.signal;
  if (status.start_errno != 0)
    object["start_error"] = errno_error(status.start_errno, "start").what;
  put_bytes(object, "stdout", result.out);
  put_bytes(object, "stderr", result.err);
  object["truncated_bytes"] = status.truncated_bytes;
  object["oom_kills"] = status.oom_kills;
  object["wall_ms"] = millis(status.wall);
  object["cpu_user_ms"] = millis(status.cpu_user);
  object["cpu_system_ms"] = millis(status.cpu_system);
  object["max_rss_bytes"] = status.max_rss_bytes;
  object["usage"] = {{"cpu_ms", millis(usage.cpu)},
                     {"memory_bytes", usage.memory_bytes},
                     {"memory_peak_bytes", usage.memory_peak_bytes},
                     {"disk_bytes", usage.disk_bytes},
                     {"inodes", usage.inodes},
                     {"pids", usage.pids}};
  object["isolation"] = json_of(sandbox.isolation());
  json::object steps;
  const auto& micros = sandbox.step_micros();
  for (std::size_t i = 0; i < micros.size(); ++i)
    steps[to_string(static_cast<LaunchStep>(i))] = micros[i];
  object["launch_us"] = std::move(steps);
  for (const auto& [name, value] : more) object[name] = value;
  return json::serialize(object);
}

}  // namespace asr
