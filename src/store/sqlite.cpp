#include "store/sqlite.hpp"

#include <sqlite3.h>

#include <cerrno>
#include <new>

namespace asr {

namespace {

constexpr std::size_t kMostPrepared = 256;
constexpr int kLongestValue = 64 * 1024 * 1024;

std::string damage_hint(const std::string& path) {
  return "stop the server and put a backup of this file in its place; \"sqlite3 " + path +
         " .recover\" shows what can still be read";
}

bool is_full(int code, int err) {
  return code == SQLITE_FULL || (code == SQLITE_IOERR && (err == ENOSPC || err == EDQUOT));
}

Error error_of(int extended, int err, const std::string& message, const std::string& path) {
  int code = extended & 0xff;
  if (is_full(code, err))
    return Error(Errc::exhausted, "the disk is full: " + path + " cannot grow",
                 "free some space on its file system; what is stored can still be read");
  switch (code) {
    case SQLITE_CONSTRAINT:
      return Error(Errc::conflict, message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Errc::timeout, path + " is in use by another program",
                   "end the program that holds it open, perhaps a sqlite3 shell");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(Errc::internal, path + " is damaged: " + message, damage_hint(path));
    case SQLITE_READONLY:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM: {
      std::string reason =
          err != 0 ? message + " (" + errno_error(err, "errno").what + ")" : message;
      return Error(Errc::os, path + " cannot be read or written: " + reason,
                   "look at the permissions and the health of its file system");
    }
    case SQLITE_TOOBIG:
      return Error(Errc::invalid, "the value is too large to be stored");
    case SQLITE_NOMEM:
      return Error(Errc::exhausted, "no memory is left for " + path);
    default:
      return Error(Errc::internal, "sqlite: " + message);
  }
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      home_(other.home_),
      bound_(other.bound_) {}

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  --home_->loans;
  if (home_->idle == nullptr)
    home_->idle = statement_;
  else
    sqlite3_finalize(statement_);
}

Result<void> Statement::checked(int code) const {
  if (code != SQLITE_OK) return fail(database_->error(code));
  return {};
}

Result<void> Statement::bind_integer(std::int64_t value) {
  return checked(sqlite3_bind_int64(statement_, ++bound_, value));
}

Result<void> Statement::bind(std::string_view text) {
  // A null pointer would bind NULL, and an empty view may have one.
  const char* data = text.empty() ? "" : text.data();
  return checked(
      sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

Result<void> Statement::bind(Blob blob) {
  return bind(std::as_bytes(std::span(blob.bytes.data(), blob.bytes.size())));
}

Result<void> Statement::bind(std::span<const std::byte> bytes) {
  const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
  return checked(sqlite3_bind_blob64(statement_, ++bound_, data, bytes.size(), SQLITE_TRANSIENT));
}

Result<void> Statement::bind(std::nullopt_t) {
  return checked(sqlite3_bind_null(statement_, ++bound_));
}

Result<bool> Statement::next() {
  int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return fail(database_->error(code));
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

void Statement::read_column(int column, std::int64_t& value) const {
  value = sqlite3_column_int64(statement_, column);
}

void Statement::read_column(int column, bool& value) const {
  value = sqlite3_column_int64(statement_, column) != 0;
}

void Statement::read_column(int column, std::string& value) const {
  const void* data = sqlite3_column_blob(statement_, column);
  int size = sqlite3_column_bytes(statement_, column);
  if (data == nullptr && size > 0) throw std::bad_alloc();
  value.assign(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

Database::Database(std::filesystem::path path, sqlite3* handle)
    : path_(std::move(path)), handle_(handle) {}

Database::~Database() {
  for (auto& [sql, home] : prepared_) sqlite3_finalize(home.idle);
  sqlite3_close(handle_);
}

Result<std::unique_ptr<Database>> Database::open(std::filesystem::path path) {
  sqlite3* handle = nullptr;
  int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                          SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOFOLLOW,
                      nullptr);
  if (handle == nullptr) return fail(Errc::exhausted, "no memory is left for " + path.native());
  std::unique_ptr<Database> database(new Database(std::move(path), handle));
  if (code != SQLITE_OK) return fail(database->error(code));
  TRY(database->configure());
  TRY(database->check());
  return database;
}

Result<void> Database::configure() {
  sqlite3_limit(handle_, SQLITE_LIMIT_LENGTH, kLongestValue);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  // busy_timeout comes first: setting WAL mode takes a lock already. recursive_triggers makes
  // INSERT OR REPLACE fire the triggers that refuse a DELETE. Without cache_spill the log holds
  // whole transactions only. Checkpoints are the owner's business, or a commit would now and then
  // wait for one.
  TRY(
      script("PRAGMA busy_timeout = 5000;"
             "PRAGMA trusted_schema = OFF;"
             "PRAGMA cell_size_check = ON;"
             "PRAGMA foreign_keys = ON;"
             "PRAGMA recursive_triggers = ON;"
             "PRAGMA temp_store = MEMORY;"
             "PRAGMA cache_spill = OFF;"
             "PRAGMA synchronous = NORMAL;"
             "PRAGMA journal_size_limit = 8388608;"
             "PRAGMA wal_autocheckpoint = 0;"));
  Statement statement = TRY(query("PRAGMA journal_mode = WAL"));
  std::string mode;
  if (TRY(statement.next())) statement.read(mode);
  if (mode != "wal")
    return fail(Errc::unsupported, path_.native() + " cannot have a write-ahead log",
                "choose a folder on a local file system");
  sqlite3_wal_hook(
      handle_,
      [](void* pages, sqlite3*, const char*, int count) {
        *static_cast<int*>(pages) = count;
        return SQLITE_OK;
      },
      &wal_pages_);
  return {};
}

Result<void> Database::check() {
  // Not quick_check: it does not see a damaged index, through which rows are lost silently. A
  // quarter of a second for 70 MB.
  Statement statement = TRY(query("PRAGMA integrity_check(1)"));
  std::string found = "no answer";
  if (TRY(statement.next())) statement.read(found);
  if (found == "ok") return {};
  return fail(Errc::internal, path_.native() + " is damaged: " + found,
              damage_hint(path_.native()));
}

Result<Statement> Database::prepare(std::string_view sql) {
  auto entry = prepared_.find(sql);
  sqlite3_stmt* statement =
      entry == prepared_.end() ? nullptr : std::exchange(entry->second.idle, nullptr);
  if (statement == nullptr) {
    int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                  SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return fail(error(code));
  }
  if (entry == prepared_.end()) {
    if (prepared_.size() >= kMostPrepared) make_room();
    entry = prepared_.emplace(sql, Statement::Home()).first;
  }
  ++entry->second.loans;
  return Statement(*this, statement, entry->second);
}

// Those on loan keep their place: they will come home to it.
void Database::make_room() {
  std::erase_if(prepared_, [](const auto& entry) {
    if (entry.second.loans > 0) return false;
    sqlite3_finalize(entry.second.idle);
    return true;
  });
}

Result<std::int64_t> Database::finish(Statement& statement) {
  std::int64_t before = total_changes();
  while (TRY(statement.next())) {
  }
  // Not sqlite3_changes(): after a statement that changes nothing it still tells of the last one.
  return total_changes() == before ? 0 : sqlite3_changes64(handle_);
}

Result<void> Database::script(const std::string& sql) {
  int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return fail(error(code));
  return {};
}

std::int64_t Database::last_insert_id() const noexcept {
  return sqlite3_last_insert_rowid(handle_);
}

std::int64_t Database::total_changes() const noexcept { return sqlite3_total_changes64(handle_); }

bool Database::in_transaction() const noexcept { return sqlite3_get_autocommit(handle_) == 0; }

Result<void> Database::checkpoint() {
  // Passive: the other modes wait for readers, and with them everybody waits who wants to write.
  int code =
      sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (code != SQLITE_OK) return fail(error(code));
  wal_pages_ = 0;
  return {};
}

Error Database::error(int code) const {
  return error_of(code, sqlite3_system_errno(handle_), sqlite3_errmsg(handle_), path_.native());
}

}  // namespace asr
