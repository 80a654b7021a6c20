// Who besides its owner may use a session. What an access means is not known here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct ShareRecord {
  std::string session;
  std::string key_id;
  std::string access;
  friend bool operator==(const ShareRecord&, const ShareRecord&) = default;
};

// Replaces what this key had. Errc::conflict when there is no such session.
Result<void> set_share(Database& database, const ShareRecord& record);
Result<bool> remove_share(Database& database, std::string_view session, std::string_view key_id);
Result<std::vector<ShareRecord>> shares_of(Database& database, std::string_view session);
Result<std::optional<std::string>> access_of(Database& database, std::string_view session,
                                             std::string_view key_id);

}  // namespace asr
