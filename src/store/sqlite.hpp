// One SQLite connection without exceptions: every failure is a Result, every value is bound. Not
// for use from two threads at once; the store gives it a thread of its own.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace asr {

class Database;

// Bytes that are not text: sealed values, hashes.
struct Blob {
  std::string_view bytes;
};

template <class T>
concept BoundInteger =
    std::same_as<T, bool> || (std::integral<T> && (std::signed_integral<T> || sizeof(T) < 8));

// A prepared statement on loan from its database, which outlives it.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // The next parameter; ?1 comes first.
  template <BoundInteger T>
  Result<void> bind(T value) {
    return bind_integer(static_cast<std::int64_t>(value));
  }
  Result<void> bind(std::string_view text);
  Result<void> bind(Blob blob);
  Result<void> bind(std::span<const std::byte> bytes);
  Result<void> bind(std::nullopt_t);
  template <class T>
  Result<void> bind(const std::optional<T>& value) {
    return value ? bind(*value) : bind(std::nullopt);
  }
  Result<bool> next();  // Whether there is a row to read.

  // The columns of the row in the order of the query.
  template <class... T>
  void read(T&... fields) const {
    int column = 0;
    (read_column(column++, fields), ...);
  }

 private:
  friend class Database;
  // Where the cache keeps it. One text may be on loan several times; one of them comes home.
  struct Home {
    sqlite3_stmt* idle = nullptr;
    int loans = 0;
  };
  Statement(Database& database, sqlite3_stmt* statement, Home& home) noexcept
      : database_(&database), statement_(statement), home_(&home) {}

  Result<void> bind_integer(std::int64_t value);
  Result<void> checked(int code) const;

  void read_column(int column, std::int64_t& value) const;
  void read_column(int column, bool& value) const;
  void read_column(int column, std::string& value) const;  // Text or blob.
  bool is_null(int column) const;
  template <class T>
  void read_column(int column, std::optional<T>& value) const {
    if (is_null(column)) return value.reset();
    read_column(column, value.emplace());
  }

  Database* database_;
  sqlite3_stmt* statement_;
  Home* home_;
  int bound_ = 0;
};

class Database {
 public:
  // Opens or makes the file and looks it over: a damaged one is an error, not a surprise later.
  static Result<std::unique_ptr<Database>> open(std::filesystem::path path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // A statement with its first parameters bound. One per text is kept prepared.
  template <class... Args>
  Result<Statement> query(std::string_view sql, const Args&... args) {
    Statement statement = TRY(prepare(sql));
    Result<void> bound;
    (void)((bound = statement.bind(args)) && ...);
    if (!bound) return fail(std::move(bound).error());
    return statement;
  }

  // Runs a statement to its end: how many rows it changed.
  template <class... Args>
  Result<std::int64_t> execute(std::string_view sql, const Args&... args) {
    Statement statement = TRY(query(sql, args...));
    return finish(statement);
  }
  Result<std::int64_t> finish(Statement& statement);

  // Several statements in one text, not kept. Some pragmas act when they are prepared, not when
  // they are stepped: those belong here.
  Result<void> script(const std::string& sql);

  std::int64_t last_insert_id() const noexcept;
  std::int64_t total_changes() const noexcept;
  bool in_transaction() const noexcept;
  int wal_pages() const noexcept { return wal_pages_; }
  // Moves the log into the file. Not all of it when somebody else is reading.
  Result<void> checkpoint();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  friend class Statement;
  struct TextHash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  Database(std::filesystem::path path, sqlite3* handle);
  Result<void> configure();
  Result<void> check();
  Result<Statement> prepare(std::string_view sql);
  void make_room();
  Error error(int code) const;

  std::filesystem::path path_;
  sqlite3* handle_;
  std::unordered_map<std::string, Statement::Home, TextHash, std::equal_to<>> prepared_;
  int wal_pages_ = 0;
};

}  // namespace asr
