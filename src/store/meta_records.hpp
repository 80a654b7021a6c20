// Single values that belong to the database as a whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

Result<std::optional<std::string>> find_meta(Database& database, std::string_view name);
Result<void> set_meta(Database& database, std::string_view name, std::string_view value);

}  // namespace asr
