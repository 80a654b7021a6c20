#include "cli/report.hpp"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>

#include "cli/commands.hpp"
#include "launch/plan.hpp"

namespace asr {

namespace json = boost::json;

namespace {

// Length of the UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  std::size_t length = lead < 0x80         ? 1
                       : (lead >> 5) == 6  ? 2
                       : (lead >> 4) == 14 ? 3
                       : (lead >> 3) == 30 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  std::uint32_t point = length == 1 ? lead : lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3FU);
  }
  static constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return 0;
  return length;
}

std::string to_utf8(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    if (length == 0)
      clean += "\xEF\xBF\xBD";
    else
      clean += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return clean;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

void add_output(json::object& object, const std::string& name, const std::string& bytes) {
  std::string text = to_utf8(bytes);
  if (text != bytes) object[name + "_base64"] = base64(bytes);
  object[name] = text;
}

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
          {"message", to_utf8(error.what)},
          {"hint", to_utf8(error.hint)}};
}

int print_json_error(const Error& error) {
  std::printf("%s\n", json::serialize(json::object{{"error", json_of(error)}}).c_str());
  return exit_code_for(error);
}

json::array json_of(const Isolation& isolation) {
  json::array facts;
  for (const IsolationFact& fact : isolation.facts) {
    json::object entry{{"name", fact.name},
                       {"guarantee", to_string(fact.guarantee)},
                       {"mechanism", fact.mechanism}};
    if (!fact.note.empty()) entry["note"] = fact.note;
    facts.push_back(std::move(entry));
  }
  return facts;
}

std::string json_result(const RunResult& result, const Sandbox& sandbox, const Usage& usage) {
  const ExitStatus& status = result.status;
  json::object object;
  object["sandbox"] = sandbox.id().text;
  object["reason"] = to_string(status.reason);
  object["exit_code"] = status.exit_code;
  object["signal"] = status.signal;
  if (status.start_errno != 0)
    object["start_error"] = errno_error(status.start_errno, "start").what;
  add_output(object, "stdout", result.out);
  add_output(object, "stderr", result.err);
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
  return json::serialize(object);
}

}  // namespace asr
