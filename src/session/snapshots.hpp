// States of sessions that were kept as environments, by owner and name. They outlive the sessions
// they came from, and the server.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "session/request.hpp"
#include "session/saved_store.hpp"

namespace asr {

class Snapshots {
 public:
  static constexpr std::size_t kMostOfOne = 100;
  static constexpr std::string_view kPrefix = "snapshot:";  // of such an environment's name

  Snapshots(std::filesystem::path folder, SavedStore& saved, SavedBudget& budget);

  asio::awaitable<Result<json::object>> save(std::string owner, std::string name,
                                             std::string session, SessionRequest request,
                                             std::shared_ptr<const SavedState> state);
  json::array list(const std::string& owner) const;
  Result<void> remove(const std::string& owner, const std::string& name);
  // What a session of this environment goes on from, and what that is made with.
  struct Found {
    std::shared_ptr<const SavedState> state;
    Environment environment;
  };
  asio::awaitable<Result<Found>> find(std::string owner, std::string name);

  // Removes what was never finished, and counts what there is. Once, before anything else.
  void take_up();

 private:
  std::filesystem::path folder_of(const std::string& owner) const;

  std::filesystem::path folder_;
  SavedStore& saved_;
  SavedBudget& budget_;
  std::set<std::filesystem::path> making_;
  std::map<std::filesystem::path, SavedBudget::Charge> charges_;
};

}  // namespace asr
