#include "session/effects_json.hpp"

#include <algorithm>

#include "session/change_list.hpp"

namespace asr {

namespace {

json::value number_or_null(const std::optional<std::uint64_t>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::array json_of(const Changes& changes) {
  json::array files;
  for (const FileChange& change : changes.entries) {
    json::object entry;
    put_bytes(entry, "path", change.path);
    entry["change"] = to_string(change.kind);
    entry["type"] = to_string(change.type);
    entry["size"] = change.size;
    entry["size_before"] = change.size_before;
    files.push_back(std::move(entry));
  }
  return files;
}

json::object json_of(const std::map<std::string, std::uint64_t>& calls) {
  json::object counts;
  for (const auto& [name, count] : calls) counts[name] = count;
  return counts;
}

std::uint64_t more_than(std::uint64_t before, std::uint64_t now) {
  return now - std::min(before, now);  // A new proxy counts anew.
}

}  // namespace

Effects::Connections difference(const Effects::Connections& before,
                                const Effects::Connections& now) {
  return {more_than(before.attempted, now.attempted), more_than(before.refused, now.refused)};
}

json::object json_of(const Effects& effects, const std::optional<Effects::Connections>& counted) {
  json::object out;
  out["files"] = effects.files ? json::value(json_of(*effects.files)) : json::value(nullptr);
  out["files_complete"] = effects.files && effects.files->complete;
  out["processes_started"] = number_or_null(effects.processes);
  out["peak_memory_bytes"] = number_or_null(effects.peak_memory_bytes);
  out["cpu_ms"] = effects.cpu ? json::value(static_cast<double>(effects.cpu->count()) / 1000)
                              : json::value(nullptr);
  out["bytes_written"] = number_or_null(effects.written_bytes);
  const auto& connections = counted ? counted : effects.connections;
  out["connections"] = nullptr;
  if (connections)
    out["connections"] = {{"attempted", connections->attempted}, {"refused", connections->refused}};
  out["refused_calls"] = nullptr;
  if (effects.refused_calls) out["refused_calls"] = json_of(*effects.refused_calls);
  json::object unknown;
  for (const auto& [name, why] : effects.unknown)
    if (name != "connections" || !connections) unknown[name] = why;
  out["unknown"] = std::move(unknown);
  return out;
}

Effects::Connections connections_of(const Session& session) {
  if (!session.egress()) return {};
  EgressCounts counts = session.egress()->counts();
  return {counts.attempts, counts.denied};
}

std::optional<Effects::Connections> sent_since(const std::optional<Effects::Connections>& before,
                                               const Session& session) {
  if (!before || !session.egress()) return std::nullopt;
  return difference(*before, connections_of(session));
}

}  // namespace asr
