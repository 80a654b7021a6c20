#include "store/meta_records.hpp"

namespace asr {

Result<std::optional<std::string>> find_meta(Database& database, std::string_view name) {
  Statement row = TRY(database.query("SELECT value FROM meta WHERE name = ?1", name));
  std::optional<std::string> value;
  if (TRY(row.next())) row.read(value);
  return value;
}

Result<void> set_meta(Database& database, std::string_view name, std::string_view value) {
  TRY(
      database.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)"
                       " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                       name, Blob{value}));
  return {};
}

}  // namespace asr
