#include "session/batch_request.hpp"

#include <cmath>
#include <unordered_set>

namespace asr {

namespace {

constexpr std::size_t kItemCost = 512;  // beside its texts

tl::unexpected<Error> at(const std::string& where, const Error& error) {
  return fail(error.code, where + ": " + error.what, error.hint);
}

// A text, or bytes in base64 under the same name with "_base64"; nothing where neither is given.
Result<std::optional<std::string>> bytes_of(const json::object& body, const std::string& name,
                                            const std::string& where) {
  const json::value* text = body.if_contains(name);
  const json::value* coded = body.if_contains(name + "_base64");
  if (text && coded)
    return fail(Errc::invalid, where + ": give \"" + name + "\" or \"" + name + "_base64\"");
  if (text) return std::optional(std::string(text->get_string()));
  if (!coded) return std::optional<std::string>();
  auto bytes = from_base64(coded->get_string());
  if (!bytes) return at(where + "/" + name + "_base64", bytes.error());
  return std::optional(std::move(*bytes));
}

Result<const ProgramLanguage*> language_of(const json::object& body, const std::string& where) {
  std::string_view name = body.at("language").get_string();
  if (const ProgramLanguage* language = find_program_language(name)) return language;
  return fail(Errc::invalid, where + "/language: there is none called that");
}

Result<InitialFile> file_of(const json::object& body, const Program& program,
                            const std::string& where) {
  InitialFile file;
  file.path = std::string(body.at("path").get_string());
  if (!file.path.starts_with('/')) file.path = std::string(kProgramFolder) + "/" + file.path;
  if (file.path == place_of_code(*program.language) || file.path == place_of_executable())
    return fail(Errc::invalid, where + "/path: the program itself is there", "choose another name");
  file.content = TRY(bytes_of(body, "content", where)).value_or("");
  if (const json::value* mode = body.if_contains("mode"))
    file.mode = mode->to_number<std::uint32_t>() & 0777;
  return file;
}

Result<Program> program_of(const json::object& body, const std::string& where) {
  Program program;
  program.language = TRY(language_of(body, where));
  program.code = std::string(body.at("code").get_string());
  if (const json::value* files = body.if_contains("files"))
    for (const json::value& file : files->get_array())
      program.files.push_back(TRY(file_of(
          file.get_object(), program, where + "/files/" + std::to_string(program.files.size()))));
  return program;
}

std::uint64_t megabytes(const json::value& value) {
  return static_cast<std::uint64_t>(std::llround(value.to_number<double>() * (1 << 20)));
}

std::chrono::milliseconds millis(const json::value& seconds) {
  return std::chrono::milliseconds(std::llround(seconds.to_number<double>() * 1000));
}

Result<Limits> limits_of(const json::object& body, const std::string& where) {
  Limits limits = judged_limits();
  std::optional<std::uint64_t> disk;
  const json::value* wanted = body.if_contains("limits");
  if (wanted)
    for (const auto& [name, value] : wanted->get_object()) {
      if (name == "wall_s") limits.wall_time = millis(value);
      if (name == "cpu_s") limits.cpu_time = millis(value);
      if (name == "memory_mb") limits.memory_bytes = megabytes(value);
      if (name == "disk_mb") disk = megabytes(value);
      if (name == "output_mb") limits.output_bytes = megabytes(value);
      if (name == "pids") limits.pids = value.to_number<std::uint32_t>();
      if (name == "cpus")
        limits.milli_cpus =
            static_cast<std::uint32_t>(std::lround(value.to_number<double>() * 1000));
    }
  limits.disk_bytes = disk.value_or(std::min(limits.disk_bytes, limits.memory_bytes / 2));
  // Who asks for more of the one time alone cannot use it without more of the other.
  bool says_wall = wanted && wanted->get_object().contains("wall_s");
  bool says_cpu = wanted && wanted->get_object().contains("cpu_s");
  if (says_wall && !says_cpu) limits.cpu_time = std::max(limits.cpu_time, limits.wall_time);
  if (says_cpu && !says_wall) limits.wall_time = std::max(limits.wall_time, 2 * limits.cpu_time);
  if (auto fits = check(limits); !fits) return at(where + "/limits", fits.error());
  return limits;
}

Result<void> check_room(const BatchItem& item, const std::string& where) {
  std::size_t needed = item.program.bytes();
  if (needed <= item.limits.disk_bytes / 2) return {};
  return fail(Errc::invalid, where + ": its files do not fit into half of its disk",
              "raise limits.memory_mb and limits.disk_mb");
}

Result<BatchItem> item_of(const json::object& body, const std::string& where) {
  BatchItem item;
  item.id = std::string(body.at("id").get_string());
  item.program = TRY(program_of(body, where));
  item.input = TRY(bytes_of(body, "stdin", where)).value_or("");
  item.limits = TRY(limits_of(body, where));
  if (const json::value* expect = body.if_contains("expect")) {
    const json::object& wanted = expect->get_object();
    item.expected = TRY(bytes_of(wanted, "stdout", where + "/expect"));
    if (!item.expected) return fail(Errc::invalid, where + "/expect must have \"stdout\"");
    if (const json::value* exact = wanted.if_contains("exact"))
      item.compare = exact->get_bool() ? Compare::bytes : Compare::lines;
  }
  if (const json::value* checker = body.if_contains("checker"))
    item.checker = TRY(program_of(checker->get_object(), where + "/checker"));
  TRY(check_room(item, where));
  return item;
}

}  // namespace

std::size_t BatchItem::bytes() const noexcept {
  return kItemCost + id.size() + program.bytes() + input.size() +
         (expected ? expected->size() : 0) + (checker ? checker->bytes() : 0);
}

std::size_t BatchRequest::bytes() const noexcept {
  std::size_t all = 0;
  for (const BatchItem& item : items) all += item.bytes();
  return all;
}

Result<BatchRequest> batch_request_from(const json::object& body, std::size_t most_items) {
  const json::array& wanted = body.at("items").get_array();
  if (wanted.size() > most_items)
    return fail(Errc::invalid,
                "/items must have at most " + std::to_string(most_items) + " entries",
                "send the rest in another request");
  BatchRequest request;
  if (const json::value* flag = body.if_contains("background"))
    request.background = flag->get_bool();
  std::unordered_set<std::string> ids;
  request.items.reserve(wanted.size());
  for (const json::value& each : wanted) {
    std::string where = "/items/" + std::to_string(request.items.size());
    request.items.push_back(TRY(item_of(each.get_object(), where)));
    if (!ids.insert(request.items.back().id).second)
      return fail(Errc::invalid, where + "/id: another item has the same",
                  "verdicts are told by id, so each needs its own");
  }
  return request;
}

}  // namespace asr
