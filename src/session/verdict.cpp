#include "session/verdict.hpp"

#include <cerrno>
#include <cstring>

#include "base/result.hpp"

namespace asr {

namespace {

constexpr std::array<std::string_view, kVerdicts> kNames{
    "accepted",      "wrong_answer",  "time_limit", "memory_limit", "output_limit",
    "runtime_error", "compile_error", "refused",    "platform"};

constexpr std::string_view kBlank = " \t\r\v\f";

std::string_view without_blank_end(std::string_view line) noexcept {
  std::size_t last = line.find_last_not_of(kBlank);
  return line.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) noexcept {
  std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view without_empty_end(std::string_view text) noexcept {
  std::size_t last = text.find_last_not_of(" \t\r\v\f\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

bool are_same_lines(std::string_view a, std::string_view b) noexcept {
  a = without_empty_end(a);
  b = without_empty_end(b);
  while (!a.empty() && !b.empty())
    if (without_blank_end(next_line(a)) != without_blank_end(next_line(b))) return false;
  return a.empty() && b.empty();
}

// What is there and cannot be run is no fault of this server; all else may go better next time.
bool is_lasting(int start_errno) noexcept {
  switch (start_errno) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ENOEXEC:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  return kNames[static_cast<std::size_t>(verdict)];
}

Verdict verdict_of(const ExitStatus& status) noexcept {
  // Some of its processes may have been killed for memory, and the first one ended for that reason.
  bool lacked_memory = status.oom_kills > 0;
  switch (status.reason) {
    case EndReason::exited:
      if (status.exit_code == 0) return Verdict::accepted;
      return lacked_memory ? Verdict::memory_limit : Verdict::runtime_error;
    case EndReason::signaled:
      return lacked_memory ? Verdict::memory_limit : Verdict::runtime_error;
    case EndReason::out_of_memory:
      return Verdict::memory_limit;
    case EndReason::wall_time:
    case EndReason::cpu_time:
      return Verdict::time_limit;
    case EndReason::output_limit:
      return Verdict::output_limit;
    case EndReason::policy:
      return Verdict::refused;
    case EndReason::not_started:
      return is_lasting(status.start_errno) ? Verdict::refused : Verdict::platform;
    case EndReason::sandbox_gone:
      return lacked_memory ? Verdict::memory_limit : Verdict::platform;
    case EndReason::lost:
      return Verdict::platform;
  }
  return Verdict::platform;
}

std::string reason_of(const ExitStatus& status) {
  switch (status.reason) {
    case EndReason::exited:
      return status.exit_code == 0 ? "" : "it exited with " + std::to_string(status.exit_code);
    case EndReason::signaled:
      return std::string("it was ended by a signal: ") + ::strsignal(status.signal);
    case EndReason::out_of_memory:
      return "it needed more memory than it may have";
    case EndReason::wall_time:
      return "it took longer than it may";
    case EndReason::cpu_time:
      return "it used more processor time than it may";
    case EndReason::output_limit:
      return "it wrote more than it may";
    case EndReason::policy:
      return "it made a system call that is forbidden here";
    case EndReason::not_started:
      return errno_error(status.start_errno, "it could not be started").what;
    case EndReason::sandbox_gone:
    case EndReason::lost:
      return "its sandbox was lost";
  }
  return "";
}

bool is_same_output(std::string_view expected, std::string_view written, Compare how) noexcept {
  return how == Compare::bytes ? expected == written : are_same_lines(expected, written);
}

std::string_view beginning_of(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  std::size_t end = most;
  // Three bytes may follow the first of a character; more of them are no text anyway.
  while (end > 0 && most - end < 3 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  if ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) end = most;
  return text.substr(0, end);
}

}  // namespace asr
