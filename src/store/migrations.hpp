// The shape of the database, and how an older one gets it.
#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

// In order; what was released is never changed, only followed by more.
std::span<const std::string_view> schema_migrations();

// What the database says of itself; 0 for one that was just made.
Result<std::int64_t> schema_version(Database& database);

// Brings the database to the last of `migrations`, each in a transaction of its own. Refuses one
// that a newer program or an unrelated one has made.
Result<void> migrate(Database& database,
                     std::span<const std::string_view> migrations = schema_migrations());

}  // namespace asr
