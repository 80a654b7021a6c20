#include "session/snapshots.hpp"

#include <sys/stat.h>

#include "base/clock.hpp"
#include "base/scope_exit.hpp"
#include "session/checkpoints.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

Error unknown(const std::string& name) {
  return Error(Errc::not_found, "there is no snapshot called \"" + name + "\"",
               "GET /api/snapshots lists yours");
}

json::object about(const std::string& name, std::int64_t at_ms) {
  return {{"name", name},
          {"environment", std::string(Snapshots::kPrefix) + name},
          {"created_at", iso_time(at_ms)}};
}

}  // namespace

Snapshots::Snapshots(fs::path folder, SavedStore& saved, SavedBudget& budget)
    : folder_(std::move(folder)), saved_(saved), budget_(budget) {}

fs::path Snapshots::folder_of(const std::string& owner) const {
  return folder_ / to_hex(sha256(owner)).substr(0, 32);  // Owners are called as they like.
}

asio::awaitable<Result<json::object>> Snapshots::save(std::string owner, std::string name,
                                                      std::string session, SessionRequest request,
                                                      std::shared_ptr<const SavedState> state) {
  CO_TRY(Checkpoints::check_name(name));
  fs::path folder = folder_of(owner) / name;
  if (making_.contains(folder) || SavedStore::is_state(folder))
    co_return fail(Errc::conflict, "there is a snapshot called \"" + name + "\" already",
                   "choose another name, or remove that one");
  if (list(owner).size() + making_.size() >= kMostOfOne)
    co_return fail(Errc::exhausted, "you have as many snapshots as one may", "remove some of them");
  making_.insert(folder);
  ScopeExit made([&] { making_.erase(folder); });
  json::object beside{{"base", to_string(request.spec.environment)},
                      {"owner", owner},
                      {"session", std::move(session)}};
  auto writing = saved_.write(folder, state, std::move(beside));
  CO_TRY(co_await std::move(writing));
  charges_[folder] = budget_.charge(owner, state->bytes());
  json::object told = json_of(*state);
  for (auto& [key, value] : about(name, state->at_ms)) told[key] = value;
  co_return told;
}

json::array Snapshots::list(const std::string& owner) const {
  json::array all;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder_of(owner), ec)) {
    struct stat info {};
    if (::stat((entry.path() / "about").c_str(), &info) != 0) continue;
    std::int64_t at = info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1'000'000;
    json::object told = about(entry.path().filename().native(), at);
    if (auto stored = saved_.look_at(entry.path()))
      if (const json::value* session = stored->about.if_contains("session"))
        told["session_id"] = *session;
    all.push_back(std::move(told));
  }
  return all;
}

Result<void> Snapshots::remove(const std::string& owner, const std::string& name) {
  TRY(Checkpoints::check_name(name));
  fs::path folder = folder_of(owner) / name;
  if (!SavedStore::is_state(folder) || making_.contains(folder)) return fail(unknown(name));
  saved_.remove(folder);
  charges_.erase(folder);
  return {};
}

asio::awaitable<Result<Snapshots::Found>> Snapshots::find(std::string owner, std::string name) {
  CO_TRY(Checkpoints::check_name(name));
  fs::path folder = folder_of(owner) / name;
  if (!SavedStore::is_state(folder)) co_return fail(unknown(name));
  auto reading = saved_.read(folder);
  auto stored = CO_TRY(co_await std::move(reading));
  Environment environment =
      CO_TRY(parse_environment(std::string(stored.about.at("base").as_string())));
  co_return Found{std::move(stored.state), std::move(environment)};
}

void Snapshots::take_up() {
  std::error_code ec;
  std::vector<fs::path> unfinished;
  for (const auto& owner : fs::directory_iterator(folder_, ec))
    for (const auto& entry : fs::directory_iterator(owner.path(), ec)) {
      if (!SavedStore::is_state(entry.path())) {
        unfinished.push_back(entry.path());
        continue;
      }
      auto stored = saved_.look_at(entry.path());
      if (!stored) continue;  // Whoever wants it is told.
      auto whose = std::string(stored->about.at("owner").as_string());
      charges_[entry.path()] = budget_.charge(whose, stored->state->bytes());
    }
  for (const fs::path& folder : unfinished) saved_.remove(folder);
}

}  // namespace asr
