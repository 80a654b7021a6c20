#include "store/store.hpp"

#include <chrono>

#include "store/meta_records.hpp"
#include "store/migrations.hpp"
#include "store/wal_check.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kKeyCheck = "key.check";

// What SQLite is about to drop is put aside, for those who know how to read it.
Result<std::vector<std::string>> rescue_log(const fs::path& log) {
  WalVerdict verdict = TRY(check_wal(log));
  if (verdict.lost == 0) return std::vector<std::string>();
  auto now = std::chrono::system_clock::now().time_since_epoch();
  fs::path copy = log;
  copy +=
      ".damaged-" + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  std::error_code ec;
  fs::copy_file(log, copy, fs::copy_options::skip_existing, ec);
  if (ec) return fail(errno_error(ec.value(), "copy " + log.native()));
  return std::vector{
      log.native() + " is damaged behind its first " + std::to_string(verdict.readable) +
      " pages: the last changes before the server ended are lost; a copy is in " + copy.native()};
}

// The database is on the disk before there is a key, so a key beside an empty database means that
// the database was lost.
Result<void> refuse_lost_database(Database& database, const StateFolder& folder) {
  if (TRY(schema_version(database)) != 0 || !TRY(folder.load_key())) return {};
  return fail(Errc::internal, database.path().native() + " is empty, but was in use before",
              "put a backup of it in its place; to begin with nothing, remove " +
                  (folder.path() / "secret.key").native() + ", too");
}

Result<std::unique_ptr<Database>> open_database(const StateFolder& folder) {
  TRY(folder.reserve_database());
  auto database = TRY(Database::open(folder.database()));
  TRY(refuse_lost_database(*database, folder));
  TRY(database->script("PRAGMA synchronous = FULL"));
  TRY(migrate(*database));
  TRY(database->checkpoint());
  TRY(database->script("PRAGMA synchronous = NORMAL"));
  return database;
}

// The key, proved to be the one that the database's secrets are sealed with.
Result<std::unique_ptr<SecretBox>> open_secrets(Database& database, const StateFolder& folder) {
  auto known = TRY(find_meta(database, kKeyCheck));
  auto key = TRY(folder.load_key());
  std::string name = (folder.path() / "secret.key").native();
  if (!key && known)
    return fail(Errc::internal, name + " is missing",
                "put a backup of it in its place: without it sealed values cannot be read");
  if (!key) key = TRY(folder.make_key());
  auto secrets = std::make_unique<SecretBox>(*key);
  if (!known) {
    TRY(set_meta(database, kKeyCheck, secrets->seal(kKeyCheck, kKeyCheck)));
  } else if (!secrets->open(*known, kKeyCheck)) {
    return fail(Errc::internal, name + " is not the key of " + database.path().native(),
                "put the key in place that belongs to this database");
  }
  return secrets;
}

}  // namespace

Store::Store(StateFolder folder, std::unique_ptr<Database> database,
             std::unique_ptr<SecretBox> secrets, std::vector<std::string> notices)
    : folder_(std::move(folder)),
      database_(std::move(database)),
      secrets_(std::move(secrets)),
      notices_(std::move(notices)),
      queue_(*database_) {}

Result<std::unique_ptr<Store>> Store::open(const fs::path& path) {
  StateFolder folder = TRY(StateFolder::open(path));
  fs::path log = folder.database();
  log += "-wal";
  auto notices = TRY(rescue_log(log));
  auto database = TRY(open_database(folder));
  auto secrets = TRY(open_secrets(*database, folder));
  return std::unique_ptr<Store>(
      new Store(std::move(folder), std::move(database), std::move(secrets), std::move(notices)));
}

}  // namespace asr
