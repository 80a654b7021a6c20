// From rows to records: the loops that every table needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

template <class Record>
using ReadRow = void (*)(const Statement& row, Record& record);

template <class Record>
Result<std::vector<Record>> remaining_rows(Statement& statement, ReadRow<Record> read) {
  std::vector<Record> records;
  while (TRY(statement.next())) read(statement, records.emplace_back());
  return records;
}

template <class Record, class... Args>
Result<std::vector<Record>> all_rows(Database& database, ReadRow<Record> read, std::string_view sql,
                                     const Args&... args) {
  Statement statement = TRY(database.query(sql, args...));
  return remaining_rows(statement, read);
}

template <class Record, class... Args>
Result<std::optional<Record>> first_row(Database& database, ReadRow<Record> read,
                                        std::string_view sql, const Args&... args) {
  Statement statement = TRY(database.query(sql, args...));
  std::optional<Record> record;
  if (TRY(statement.next())) read(statement, record.emplace());
  return record;
}

// The only column of the only row; `missing` when there is no row or it holds NULL.
template <class... Args>
Result<std::int64_t> one_number(Database& database, std::int64_t missing, std::string_view sql,
                                const Args&... args) {
  Statement statement = TRY(database.query(sql, args...));
  std::optional<std::int64_t> value;
  if (TRY(statement.next())) statement.read(value);
  return value.value_or(missing);
}

// For statements that name one row, which must be there: `what` says which.
template <class... Args>
Result<void> change_one(Database& database, const std::string& what, std::string_view sql,
                        const Args&... args) {
  if (TRY(database.execute(sql, args...)) == 0) return fail(Errc::not_found, "there is no " + what);
  return {};
}

template <class Record>
Result<Record> must_exist(std::optional<Record> record, const std::string& what) {
  if (!record) return fail(Errc::not_found, "there is no " + what);
  return *std::move(record);
}

}  // namespace asr
