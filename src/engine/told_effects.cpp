#include "engine/told_effects.hpp"

#include "engine/told_changes.hpp"
#include "policy/syscalls.hpp"

namespace asr {

namespace {

std::optional<std::uint64_t> count_of(std::int64_t told) {
  if (told < 0) return std::nullopt;
  return static_cast<std::uint64_t>(told);
}

// More than a guest tells (guest/stock.cpp).
constexpr std::size_t kMostCalls = 512;

std::string name_of(std::uint32_t number) {
  static const SyscallRules known = fence_rules();
  const SyscallRule* rule = find(known, number);
  return rule ? std::string(rule->name) : "syscall_" + std::to_string(number);
}

std::map<std::string, std::uint64_t> by_name(const std::vector<wire::RefusedCalls>& told) {
  std::map<std::string, std::uint64_t> calls;
  for (const wire::RefusedCalls& one : told)
    if (one.count > 0 && calls.size() < kMostCalls) calls.emplace(name_of(one.number), one.count);
  return calls;
}

}  // namespace

Effects effects_of(wire::Measured told, MemoryPeaks::Watch* memory) {
  Effects effects;
  auto& unknown = effects.unknown;
  if (told.files_known) {
    wire::ChangeList list;
    list.entries = std::move(told.files);
    list.complete = told.files_complete;
    ToldChanges changes;
    if (auto added = changes.add(std::move(list)))
      effects.files = changes.take();
    else
      unknown["files"] = added.error().what;
  } else {
    unknown["files"] = told.files_too_many ? "too many files to compare"
                                           : "what is written there is not kept apart";
  }
  effects.processes = count_of(told.processes);
  if (!effects.processes) unknown["processes_started"] = "process numbers began anew meanwhile";
  effects.written_bytes = count_of(told.written_bytes);
  if (!effects.written_bytes)
    unknown["bytes_written"] = "the kernel does not tell, or the process is gone";
  if (told.attempted >= 0 && told.refused >= 0)
    effects.connections = {*count_of(told.attempted), *count_of(told.refused)};
  else
    unknown["connections"] = "the kernel does not count them";
  if (told.refused_calls_known)
    effects.refused_calls = by_name(told.refused_calls);
  else
    unknown["refused_calls"] = "something around the sandbox listens to system calls already";
  if (told.cpu_us >= 0) effects.cpu = std::chrono::microseconds(told.cpu_us);
  if (memory != nullptr) effects.peak_memory_bytes = memory->peak();
  if (memory == nullptr)
    unknown["peak_memory_bytes"] = "no control group counts the memory";
  else if (!effects.peak_memory_bytes)
    unknown["peak_memory_bytes"] =
        "the sandbox had more before, and the kernel tells only the most";
  return effects;
}

Effects unknown_effects(const std::string& why) {
  Effects effects;
  for (const char* name : {"files", "processes_started", "peak_memory_bytes", "cpu_ms",
                           "bytes_written", "connections", "refused_calls"})
    effects.unknown[name] = why;
  return effects;
}

}  // namespace asr
