#include "session/artifacts.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <fstream>

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::size_t kPiece = 1 << 20;  // copied before others have their turn

Result<void> write_all(int file, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write an artifact");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string mime_of(std::string_view name) {
  static const std::map<std::string_view, std::string_view> kTypes{
      {"png", "image/png"},       {"jpg", "image/jpeg"},        {"jpeg", "image/jpeg"},
      {"svg", "image/svg+xml"},   {"gif", "image/gif"},         {"webp", "image/webp"},
      {"pdf", "application/pdf"}, {"json", "application/json"}, {"csv", "text/csv"},
      {"txt", "text/plain"},      {"md", "text/markdown"},      {"html", "text/html"},
      {"py", "text/x-python"},    {"js", "text/javascript"},    {"xml", "application/xml"},
      {"zip", "application/zip"}, {"gz", "application/gzip"},   {"tar", "application/x-tar"},
      {"mp4", "video/mp4"},       {"mp3", "audio/mpeg"},        {"wav", "audio/wav"}};
  std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "application/octet-stream";
  auto found = kTypes.find(name.substr(dot + 1));
  return std::string(found == kTypes.end() ? "application/octet-stream" : found->second);
}

json::object json_of(const Artifact& artifact) {
  json::object out{{"artifact_id", artifact.id},
                   {"mime", artifact.mime},
                   {"size", artifact.size},
                   {"created_at", iso_time(artifact.created_ms)}};
  put_bytes(out, "name", artifact.name);
  if (!artifact.path.empty()) put_bytes(out, "path", artifact.path);
  return out;
}

// What an earlier life of the server kept. Each has a file beside it that says what it is.
Result<void> Artifacts::load() {
  if (loaded_) return {};
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ec)) {
    std::string file = entry.path().filename();
    if (!file.ends_with(".json")) continue;
    std::ifstream in(entry.path());
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    auto about = parse_json(text);
    if (!about || !about->is_object()) continue;
    const json::object& fields = about->get_object();
    auto text_at = [&](const char* name) {
      const json::value* value = fields.if_contains(name);
      return value && value->is_string() ? std::string(value->get_string()) : std::string();
    };
    Artifact artifact{
        file.substr(0, file.size() - 5), text_at("name"), text_at("path"), text_at("mime"), 0, 0};
    if (const json::value* at = fields.if_contains("created_ms"); at && at->is_int64())
      artifact.created_ms = at->get_int64();
    artifact.size = std::filesystem::file_size(folder_ / artifact.id, ec);
    if (ec) continue;
    std::uint64_t number = 0;
    std::from_chars(artifact.id.data() + 1, artifact.id.data() + artifact.id.size(), number);
    last_ = std::max(last_, number);
    bytes_ += artifact.size;
    all_.emplace(artifact.id, std::move(artifact));
  }
  loaded_ = true;
  return {};
}

Result<void> Artifacts::make_room(std::uint64_t size) {
  TRY(load());
  if (size > kLargest)
    return fail(Errc::exhausted, "it is larger than an artifact may be",
                "read it through the file routes");
  if (all_.size() >= kMost || bytes_ + size > kMostBytes)
    return fail(Errc::exhausted, "the session has as many artifacts as it may",
                "remove some of them");
  return {};
}

Result<UniqueFd> Artifacts::new_file() {
  std::error_code ec;
  std::filesystem::create_directories(folder_, ec);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ec);
  UniqueFd file(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return fail_errno("make an artifact in " + folder_.native());
  return file;
}

// The data first, then what it is: one without the other is nothing.
Result<Artifact> Artifacts::put(Artifact artifact, UniqueFd file) {
  artifact.id = "a" + std::to_string(++last_);
  artifact.created_ms = now_ms();
  std::string from = "/proc/self/fd/" + std::to_string(file.get());
  std::filesystem::path to = folder_ / artifact.id;
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return fail_errno("keep an artifact in " + folder_.native());
  json::object about{{"name", repair_utf8(artifact.name)},
                     {"path", repair_utf8(artifact.path)},
                     {"mime", artifact.mime},
                     {"created_ms", artifact.created_ms}};
  UniqueFd beside(
      ::open((to.native() + ".json").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!beside) return fail_errno("keep an artifact in " + folder_.native());
  TRY(write_all(beside.get(), to_text(about)));
  bytes_ += artifact.size;
  all_.emplace(artifact.id, artifact);
  return artifact;
}

Result<Artifact> Artifacts::keep_bytes(std::string name, std::string mime, std::string_view data) {
  TRY(make_room(data.size()));
  UniqueFd file = TRY(new_file());
  TRY(write_all(file.get(), data));
  return put({"", std::move(name), "", std::move(mime), data.size(), 0}, std::move(file));
}

asio::awaitable<Result<Artifact>> Artifacts::keep_file(std::shared_ptr<Sandbox> sandbox,
                                                       std::string path) {
  auto opening = sandbox->open_read(path);
  UniqueFd from = CO_TRY(co_await std::move(opening));
  struct stat info {};
  if (::fstat(from.get(), &info) != 0 || !S_ISREG(info.st_mode))
    co_return fail(Errc::invalid, "only a file can be an artifact");
  CO_TRY(load());
  auto earlier = std::find_if(all_.begin(), all_.end(),
                              [&](const auto& entry) { return entry.second.path == path; });
  if (earlier != all_.end()) CO_TRY(remove(std::string(earlier->first)));
  CO_TRY(make_room(static_cast<std::uint64_t>(info.st_size)));
  UniqueFd file = CO_TRY(new_file());
  std::uint64_t copied = 0;
  std::string piece(kPiece, '\0');
  // It may grow under our hands.
  while (copied <= kLargest) {
    ssize_t n = ::read(from.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) co_return fail_errno("read " + path);
    if (n == 0) break;
    CO_TRY(write_all(file.get(), std::string_view(piece).substr(0, static_cast<std::size_t>(n))));
    copied += static_cast<std::uint64_t>(n);
    if (copied >= kPiece) co_await asio::post(asio::use_awaitable);
  }
  CO_TRY(make_room(copied));
  Artifact artifact{"", base_name(path), path, mime_of(path), copied, 0};
  co_return put(std::move(artifact), std::move(file));
}

Result<std::vector<Artifact>> Artifacts::list() {
  TRY(load());
  std::vector<Artifact> all;
  for (const auto& [id, artifact] : all_) all.push_back(artifact);
  std::sort(all.begin(), all.end(), [](const Artifact& a, const Artifact& b) {
    return a.id.size() != b.id.size() ? a.id.size() < b.id.size() : a.id < b.id;
  });
  return all;
}

std::uint64_t Artifacts::bytes() {
  (void)load();
  return bytes_;
}

Result<Artifact> Artifacts::find(const std::string& id) {
  TRY(load());
  auto found = all_.find(id);
  if (found == all_.end())
    return fail(Errc::not_found, "there is no such artifact",
                "GET /api/sessions/{id}/artifacts lists them");
  return found->second;
}

Result<UniqueFd> Artifacts::open(const std::string& id) {
  Artifact artifact = TRY(find(id));  // A name that is known is one of ours.
  UniqueFd file(::open((folder_ / artifact.id).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno("open an artifact");
  return file;
}

Result<void> Artifacts::remove(const std::string& id) {
  Artifact artifact = TRY(find(id));
  std::filesystem::path path = folder_ / artifact.id;
  ::unlink((path.native() + ".json").c_str());
  ::unlink(path.c_str());
  bytes_ -= artifact.size;
  all_.erase(id);
  return {};
}

}  // namespace asr
