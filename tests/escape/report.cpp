#include "report.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <boost/json/src.hpp>  // Header-only: this file is its one home.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.hpp"

namespace asr::escape {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

std::vector<Record>& kept() {
  static std::vector<Record> records;
  return records;
}

fs::path report_path() {
  const char* path = std::getenv("ASR_ATTACKS_JSON");
  return fs::absolute(path != nullptr && *path != '\0' ? path : "attacks.json");
}

std::string text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

json::object to_json(const Record& record) {
  json::array unproven(record.unproven.begin(), record.unproven.end());
  return {{"case", record.name},
          {"title", record.title},
          {"result", to_string(record.outcome)},
          {"outside_succeeded", record.outside_succeeded},
          {"attempts", record.attempts},
          {"proven", record.proven},
          {"seconds", record.seconds},
          {"reason", record.reason},
          {"unproven", std::move(unproven)}};
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::vector<Attempt> parse_attempts(const std::string& output, const std::string& as,
                                    std::string& no_box) {
  std::vector<Attempt> attempts;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    boost::system::error_code ec;
    json::value value = json::parse(line, ec);
    if (ec || !value.is_object()) continue;
    const json::object& object = value.as_object();
    if (object.contains("no_box")) no_box = text_of(object, "no_box");
    if (!object.contains("attempt")) continue;
    const json::value* succeeded = object.if_contains("succeeded");
    attempts.push_back(
        {.what = text_of(object, "attempt"),
         .kind = text_of(object, "kind"),
         .succeeded = succeeded != nullptr && succeeded->is_bool() && succeeded->as_bool(),
         .err = text_of(object, "errno"),
         .detail = text_of(object, "detail"),
         .unprovable = text_of(object, "unprovable"),
         .as = as});
  }
  return attempts;
}

std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::held:
      return "held";
    case Outcome::breached:
      return "breached";
    case Outcome::not_applicable:
      return "not_applicable";
    case Outcome::not_provable:
      return "not_provable";
  }
  return "breached";
}

void keep(const Record& record) {
  kept().push_back(record);
  fs::path report = report_path();
  fs::path parts = report;
  parts += ".d";
  fs::create_directories(parts);
  UniqueFd lock(::open((parts / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) return;
  std::ofstream(parts / (record.name + ".json")) << json::serialize(to_json(record)) << "\n";

  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(parts))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::ofstream all(report);
  all << "[\n";
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string text = read_file(files[i]);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    all << "  " << text << (i + 1 < files.size() ? ",\n" : "\n");
  }
  all << "]\n";
}

std::string table() {
  std::vector<Record> records = kept();
  if (records.empty()) return "";
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.name < b.name; });
  std::ostringstream out;
  char line[256];
  std::snprintf(line, sizeof(line), "%-8s %-14s %8s %8s %8s  %s\n", "case", "result", "attempts",
                "proven", "seconds", "what");
  out << line;
  for (const Record& record : records) {
    std::snprintf(line, sizeof(line), "%-8s %-14s %8zu %8zu %8.2f  ", record.name.c_str(),
                  std::string(to_string(record.outcome)).c_str(), record.attempts, record.proven,
                  record.seconds);
    out << line << record.title << (record.reason.empty() ? "" : ": " + record.reason) << "\n";
  }
  return out.str();
}

}  // namespace asr::escape
