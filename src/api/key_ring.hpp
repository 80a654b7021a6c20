// Who holds which key. All keys are known in memory by their hashes; changes are stored first.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "session/caller.hpp"
#include "store/key_records.hpp"
#include "store/store.hpp"

namespace asr {

struct NewKey {
  std::string name;
  Role role = Role::user;
  std::int64_t expires_ms = 0;          // 0: never
  std::uint32_t most_sessions = 0;      // 0: as the server says
  std::optional<std::string> key = {};  // chosen by the caller; none: made here
  // How one that is made here looks: as ours do, or as E2B's clients want theirs.
  enum class Form { own, e2b } form = Form::own;
};

class KeyRing {
 public:
  explicit KeyRing(Store& store) : store_(store) {}

  Result<void> load();  // Blocking: before the server serves.
  bool has_admin() const;

  struct Made {
    KeyRecord record;
    std::string key;  // told once, never kept
  };
  Result<Made> make_blocking(NewKey wanted);
  boost::asio::awaitable<Result<Made>> make(Caller caller, NewKey wanted);
  boost::asio::awaitable<Result<void>> revoke(Caller caller, std::string id);
  std::vector<KeyRecord> list() const;
  bool knows(std::string_view id) const;

  // The caller behind a key; nothing for one that is wrong, revoked or expired.
  std::optional<Caller> find(std::string_view key) const;
  // Whether a caller of some time ago would still be let in.
  bool still_holds(const Caller& caller) const;

 private:
  Result<Made> prepare(NewKey wanted) const;
  void remember(KeyRecord record);

  Store& store_;
  std::unordered_map<std::string, KeyRecord> by_hash_;
  std::unordered_map<std::string, std::string> hash_of_;  // by id
};

}  // namespace asr
