// Named secrets of owners, sealed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

struct SecretRecord {
  std::string id;
  std::string owner;
  std::string name;
  std::int64_t version = 1;
  std::string sealed;
  std::string metadata = "{}";  // a JSON object
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
  friend bool operator==(const SecretRecord&, const SecretRecord&) = default;
};

// Errc::conflict when the owner has one of that name.
Result<void> insert_secret(Database& database, const SecretRecord& record);
Result<void> update_secret(Database& database, const SecretRecord& record);
// By its id or its name.
Result<SecretRecord> find_secret(Database& database, std::string_view owner,
                                 std::string_view id_or_name);
Result<std::vector<SecretRecord>> list_secrets(Database& database, std::string_view owner);
Result<bool> remove_secret(Database& database, std::string_view id);

}  // namespace asr
