#include "provider/e2b/answers.hpp"

#include <algorithm>
#include <ctime>

#include "provider/e2b/metadata.hpp"

namespace asr::e2b {

namespace {

constexpr std::size_t kMostText = 4096;
constexpr std::size_t kMostEntries = 100'000;

Error odd(std::string_view what) {
  return Error(Errc::provider,
               "the provider's server answers with something odd: " + std::string(what));
}

Result<const json::object*> object_in(const json::value& value, std::string_view what) {
  if (!value.is_object()) return fail(odd(what));
  return &value.get_object();
}

// Empty where it is missing or null.
Result<std::string> text_in(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  if (!value || value->is_null()) return std::string();
  if (!value->is_string() || value->get_string().size() > kMostText) return fail(odd(name));
  return std::string(value->get_string());
}

// Numbers may come as texts; zero where they are missing.
Result<std::int64_t> number_in(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  if (!value || value->is_null()) return std::int64_t{0};
  if (value->is_int64()) return value->get_int64();
  if (value->is_uint64()) return fail(odd(name));
  if (value->is_double()) {
    double number = value->get_double();
    if (!(number > -9e15 && number < 9e15)) return fail(odd(name));
    return static_cast<std::int64_t>(number);
  }
  if (!value->is_string()) return fail(odd(name));
  std::string text(value->get_string());
  char* end = nullptr;
  errno = 0;
  long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0) return fail(odd(name));
  return static_cast<std::int64_t>(number);
}

Result<std::uint64_t> count_in(const json::object& from, std::string_view name) {
  std::int64_t number = TRY(number_in(from, name));
  if (number < 0) return fail(odd(name));
  return static_cast<std::uint64_t>(number);
}

bool is_domain(std::string_view text) {
  if (text.size() > 255) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':';
  });
}

// It goes into a header.
bool is_token(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

Result<Place> place_of(const json::object& from) {
  Place place{TRY(text_in(from, "sandboxID")), TRY(text_in(from, "envdAccessToken")),
              TRY(text_in(from, "domain"))};
  if (!is_sandbox_id(place.id)) return fail(odd("sandboxID"));
  if (!is_token(place.token)) return fail(odd("envdAccessToken"));
  if (!is_domain(place.domain)) return fail(odd("domain"));
  return place;
}

Result<bool> is_paused(const json::object& from) {
  std::string state = TRY(text_in(from, "state"));
  if (state != "running" && state != "paused" && !state.empty()) return fail(odd("state"));
  return state == "paused";
}

std::uint32_t id_of(const std::string& owner) {
  if (owner == "root") return 0;
  if (owner == "user") return 1000;
  char* end = nullptr;
  unsigned long number = std::strtoul(owner.c_str(), &end, 10);
  return !owner.empty() && *end == '\0' ? static_cast<std::uint32_t>(number) : 65534;
}

// RFC 3339, with or without fractions. The epoch for what is none: no reason to fail.
std::chrono::system_clock::time_point time_of(const std::string& text) {
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (!rest) return {};
  auto time = std::chrono::system_clock::from_time_t(::timegm(&parts));
  double fraction = *rest == '.' ? std::strtod(("0" + std::string(rest)).c_str(), nullptr) : 0;
  while (*rest == '.' || (*rest >= '0' && *rest <= '9')) ++rest;
  if (*rest == '+' || *rest == '-') {
    int hours = 0, minutes = 0;
    if (std::sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2) {
      auto off = std::chrono::minutes(hours * 60 + minutes);
      time += *rest == '+' ? -off : off;
    }
  }
  if (fraction > 0 && fraction < 1)
    time += std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::chrono::duration<double>(fraction));
  return time;
}

// As Go's os/exec words it: "signal: killed". In whatever letters.
int signal_of(std::string_view status) {
  constexpr std::pair<std::string_view, int> kWords[] = {
      {"hangup", 1},        {"interrupt", 2},
      {"quit", 3},          {"illegal", 4},
      {"trace", 5},         {"abort", 6},
      {"bus error", 7},     {"floating", 8},
      {"killed", 9},        {"user defined signal 1", 10},
      {"segmentation", 11}, {"user defined signal 2", 12},
      {"broken pipe", 13},  {"alarm", 14},
      {"terminated", 15},   {"cpu time limit", 24},
      {"file size", 25}};
  std::string text(status);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  constexpr std::string_view kPrefix = "signal: ";
  if (!text.starts_with(kPrefix)) return 0;
  text.erase(0, kPrefix.size());
  for (const auto& [word, number] : kWords)
    if (text.starts_with(word)) return number;
  constexpr std::string_view kNumbered = "signal ";  // "signal: signal 34"
  int number = text.starts_with(kNumbered) ? std::atoi(text.c_str() + kNumbered.size()) : 0;
  return number > 0 && number < 65 ? number : 9;
}

}  // namespace

bool is_sandbox_id(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 300;
  std::string out;
  for (char c : text.substr(0, kShown)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

Result<Place> place_in(const json::value& answer) {
  const json::object& from = *TRY(object_in(answer, "a sandbox"));
  return place_of(from);
}

Result<std::vector<Listed>> list_in(const json::value& answer) {
  if (!answer.is_array() || answer.get_array().size() > 1000) return fail(odd("a list"));
  std::vector<Listed> all;
  for (const json::value& entry : answer.get_array()) {
    const json::object& from = *TRY(object_in(entry, "a sandbox"));
    Listed listed{TRY(text_in(from, "sandboxID")), TRY(is_paused(from)), "", ""};
    if (!is_sandbox_id(listed.id)) return fail(odd("sandboxID"));
    const json::value* metadata = from.if_contains("metadata");
    if (metadata && metadata->is_object()) {
      listed.server = TRY(text_in(metadata->get_object(), kServerKey));
      listed.session = TRY(text_in(metadata->get_object(), kSessionKey));
    }
    all.push_back(std::move(listed));
  }
  return all;
}

Result<Detail> detail_in(const json::value& answer) {
  const json::object& from = *TRY(object_in(answer, "a sandbox"));
  return Detail{TRY(place_of(from)),
                TRY(is_paused(from)),
                {TRY(count_in(from, "cpuCount")), TRY(count_in(from, "memoryMB")),
                 TRY(count_in(from, "diskSizeMB"))}};
}

Result<Usage> usage_in(const json::value& answer) {
  const json::object& from = *TRY(object_in(answer, "usage"));
  Usage usage;
  usage.memory_bytes = TRY(count_in(from, "mem_used"));
  usage.disk_bytes = TRY(count_in(from, "disk_used"));
  usage.disk_limit_bytes = TRY(count_in(from, "disk_total"));
  return usage;
}

Result<FileInfo> file_in(const json::value& entry) {
  const json::object& from = *TRY(object_in(entry, "a file"));
  FileInfo info;
  info.name = TRY(text_in(from, "name"));
  if (info.name.find('/') != std::string::npos && info.name != "/") return fail(odd("name"));
  std::string type = TRY(text_in(from, "type"));
  info.target = TRY(text_in(from, "symlinkTarget"));
  info.type = !info.target.empty()            ? FileType::symlink
              : type == "FILE_TYPE_FILE"      ? FileType::file
              : type == "FILE_TYPE_DIRECTORY" ? FileType::directory
              : type == "FILE_TYPE_SYMLINK"   ? FileType::symlink
                                              : FileType::other;
  info.size = TRY(count_in(from, "size"));
  info.mode = static_cast<std::uint32_t>(TRY(count_in(from, "mode")) & 07777);
  info.uid = id_of(TRY(text_in(from, "owner")));
  info.gid = id_of(TRY(text_in(from, "group")));
  info.modified = time_of(TRY(text_in(from, "modifiedTime")));
  return info;
}

Result<std::vector<FileInfo>> files_in(const json::value& answer) {
  const json::object& from = *TRY(object_in(answer, "a list of files"));
  std::vector<FileInfo> all;
  const json::value* entries = from.if_contains("entries");
  if (!entries) return all;
  if (!entries->is_array() || entries->get_array().size() > kMostEntries)
    return fail(odd("entries"));
  for (const json::value& entry : entries->get_array()) all.push_back(TRY(file_in(entry)));
  return all;
}

Result<std::optional<WatchEvent>> watch_event_in(const json::object& message) {
  const json::value* event = message.if_contains("filesystem");
  if (!event) return std::optional<WatchEvent>();
  const json::object& from = *TRY(object_in(*event, "a change"));
  WatchEvent out;
  out.path = TRY(text_in(from, "name"));
  std::string type = TRY(text_in(from, "type"));
  if (type == "EVENT_TYPE_CREATE")
    out.kind = WatchEvent::Kind::created;
  else if (type == "EVENT_TYPE_WRITE")
    out.kind = WatchEvent::Kind::modified;
  else if (type == "EVENT_TYPE_REMOVE")
    out.kind = WatchEvent::Kind::removed;
  else if (type == "EVENT_TYPE_RENAME")
    out.kind = WatchEvent::Kind::moved_from;
  else if (type == "EVENT_TYPE_CHMOD")
    out.kind = WatchEvent::Kind::attributes;
  else
    return std::optional<WatchEvent>();
  return out;
}

Result<ProcessEvent> process_event_in(const json::object& message) {
  ProcessEvent out;
  const json::value* event = message.if_contains("event");
  if (!event) return out;
  const json::object& from = *TRY(object_in(*event, "an event"));
  if (const json::value* start = from.if_contains("start")) {
    out.kind = ProcessEvent::Kind::start;
    const json::object& parts = *TRY(object_in(*start, "start"));
    std::int64_t pid = TRY(number_in(parts, "pid"));
    if (pid <= 0 || pid > INT32_MAX) return fail(odd("pid"));
    out.pid = static_cast<std::int32_t>(pid);
  } else if (const json::value* data = from.if_contains("data")) {
    out.kind = ProcessEvent::Kind::data;
    const json::object& parts = *TRY(object_in(*data, "data"));
    for (const char* name : {"stdout", "stderr", "pty"}) {
      const json::value* part = parts.if_contains(name);
      if (!part) continue;
      if (!part->is_string()) return fail(odd(name));
      auto bytes = from_base64(part->get_string());
      if (!bytes) return fail(odd(name));
      out.chunk = {name[3] == 'e' ? OutputChunk::Stream::err : OutputChunk::Stream::out,
                   std::move(*bytes)};
    }
  } else if (const json::value* end = from.if_contains("end")) {
    out.kind = ProcessEvent::Kind::end;
    const json::object& parts = *TRY(object_in(*end, "end"));
    std::int64_t code = TRY(number_in(parts, "exitCode"));
    if (code < -256 || code > 256) return fail(odd("exitCode"));
    out.exit_code = static_cast<int>(code);
    const json::value* exited = parts.if_contains("exited");
    bool by_itself = exited && exited->is_bool() && exited->get_bool();
    std::string status = TRY(text_in(parts, "status"));
    if (!by_itself) out.signal = signal_of(status);
    if (!by_itself && out.signal == 0 && code < 0) out.signal = 9;
  }
  return out;
}

Result<std::vector<RemoteProcess>> processes_in(const json::value& answer) {
  const json::object& from = *TRY(object_in(answer, "a list of processes"));
  std::vector<RemoteProcess> all;
  const json::value* list = from.if_contains("processes");
  if (!list) return all;
  if (!list->is_array() || list->get_array().size() > kMostEntries) return fail(odd("processes"));
  for (const json::value& entry : list->get_array()) {
    const json::object& process = *TRY(object_in(entry, "a process"));
    std::int64_t pid = TRY(number_in(process, "pid"));
    if (pid <= 0 || pid > INT32_MAX) return fail(odd("pid"));
    all.push_back({static_cast<std::int32_t>(pid), TRY(text_in(process, "tag"))});
  }
  return all;
}

Error connect_error(const json::object& error) {
  auto text = [&](const char* name) {
    const json::value* value = error.if_contains(name);
    return value && value->is_string() ? std::string(value->get_string()) : std::string();
  };
  constexpr std::pair<std::string_view, Errc> kCodes[] = {
      {"invalid_argument", Errc::invalid},     {"not_found", Errc::not_found},
      {"already_exists", Errc::conflict},      {"permission_denied", Errc::denied},
      {"unauthenticated", Errc::invalid},      {"resource_exhausted", Errc::exhausted},
      {"failed_precondition", Errc::conflict}, {"aborted", Errc::conflict},
      {"unimplemented", Errc::unsupported},    {"deadline_exceeded", Errc::timeout},
      {"out_of_range", Errc::invalid}};
  std::string name = text("code");
  Errc code = Errc::provider;
  for (const auto& [word, meant] : kCodes)
    if (word == name) code = meant;
  std::string what = shown(text("message"));
  return Error(code, what.empty() ? "the provider's server says: " + shown(name) : what);
}

}  // namespace asr::e2b
