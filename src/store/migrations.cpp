#include "store/migrations.hpp"

#include <array>

namespace asr {

namespace {

constexpr std::int64_t kApplicationId = 0x61737231;  // "asr1"

// Each index is one more page in every commit: there is none for what is asked rarely.
// STRICT and the CHECKs also serve the look at a file when it is opened: a value of the wrong kind
// is damage that can be named. Long columns come last, so that a scan need not walk over them.
constexpr std::string_view kFirst = R"sql(
CREATE TABLE meta (
  name TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  provider TEXT NOT NULL,
  environment TEXT NOT NULL,
  state TEXT NOT NULL,
  persistent INTEGER NOT NULL CHECK (persistent IN (0, 1)),
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  idle_ms INTEGER NOT NULL,
  active_ms INTEGER NOT NULL,
  ended_ms INTEGER,
  end_reason TEXT NOT NULL,
  url TEXT NOT NULL,
  labels TEXT NOT NULL,
  sandbox TEXT NOT NULL,
  isolation TEXT NOT NULL,
  sealed BLOB NOT NULL,
  spec TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_time ON sessions (created_ms DESC, id);
CREATE INDEX sessions_ended ON sessions (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE session_labels (
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_labels_by_value ON session_labels (name, value, session);

CREATE TABLE session_shares (
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  key_id TEXT NOT NULL,
  access TEXT NOT NULL,
  PRIMARY KEY (session, key_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_shares_by_key ON session_shares (key_id, session);

CREATE TABLE api_keys (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('admin', 'operator', 'user', 'viewer')),
  prefix TEXT NOT NULL,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  revoked_ms INTEGER,
  last_used_ms INTEGER NOT NULL,
  quotas TEXT NOT NULL
) STRICT;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  type TEXT NOT NULL,
  session TEXT NOT NULL,
  owner TEXT NOT NULL,
  data TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_session ON events (session, id);

CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  detail TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit log is append-only'); END;

CREATE TABLE idempotency (
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  request_hash BLOB NOT NULL,
  session TEXT NOT NULL,
  status INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  response BLOB NOT NULL,
  UNIQUE (owner, key)
) STRICT;
CREATE INDEX idempotency_by_time ON idempotency (created_ms);

CREATE TABLE volumes (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  size_limit INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  UNIQUE (owner, name)
) STRICT;

CREATE TABLE volume_uses (
  volume TEXT NOT NULL REFERENCES volumes (id) ON DELETE RESTRICT,
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  path TEXT NOT NULL,
  read_only INTEGER NOT NULL CHECK (read_only IN (0, 1)),
  PRIMARY KEY (session, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX volume_uses_by_volume ON volume_uses (volume);

CREATE TABLE webhooks (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  url TEXT NOT NULL,
  events TEXT NOT NULL,
  sealed BLOB NOT NULL,
  active INTEGER NOT NULL CHECK (active IN (0, 1)),
  created_ms INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  last_error TEXT NOT NULL
) STRICT;
CREATE INDEX webhooks_by_owner ON webhooks (owner, created_ms, id);

CREATE TABLE webhook_deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  webhook TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
  event_id INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  next_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'done', 'failed')),
  UNIQUE (webhook, event_id)
) STRICT;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_ms, id) WHERE state = 'pending';

CREATE TABLE usage (
  session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
  at_ms INTEGER NOT NULL,
  cpu_us INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  memory_peak INTEGER NOT NULL,
  pids INTEGER NOT NULL,
  disk_bytes INTEGER NOT NULL,
  PRIMARY KEY (session, at_ms)
) STRICT, WITHOUT ROWID;
)sql";

// What cells made may outlive the session; how much that is, is known when it has ended.
constexpr std::string_view kKeptArtifacts = R"sql(
ALTER TABLE sessions ADD COLUMN keep_artifacts INTEGER NOT NULL DEFAULT 0
  CHECK (keep_artifacts IN (0, 1));
ALTER TABLE sessions ADD COLUMN artifact_bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_keeping ON sessions (owner, ended_ms, id)
  WHERE keep_artifacts = 1 AND ended_ms IS NOT NULL;
)sql";

// While a session is paused its time stands still: what is left of it.
constexpr std::string_view kTimeLeft = R"sql(
ALTER TABLE sessions ADD COLUMN left_ms INTEGER NOT NULL DEFAULT 0;
)sql";

constexpr std::string_view kSecretsAndTemplates = R"sql(
CREATE TABLE secrets (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  sealed BLOB NOT NULL,
  UNIQUE (owner, name)
) STRICT;

CREATE TABLE templates (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  public INTEGER NOT NULL CHECK (public IN (0, 1)),
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  UNIQUE (owner, name)
) STRICT;

CREATE TABLE template_builds (
  id TEXT NOT NULL PRIMARY KEY,
  template TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'building', 'ready', 'error')),
  reason TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  spec TEXT NOT NULL,
  log TEXT NOT NULL
) STRICT;
CREATE INDEX template_builds_by_template ON template_builds (template, created_ms DESC, id);

CREATE TABLE template_tags (
  template TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
  tag TEXT NOT NULL,
  build TEXT NOT NULL REFERENCES template_builds (id) ON DELETE CASCADE,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (template, tag)
) STRICT, WITHOUT ROWID;
)sql";

constexpr std::array kMigrations{kFirst, kKeptArtifacts, kTimeLeft, kSecretsAndTemplates};

Result<std::int64_t> number(Database& database, std::string_view pragma) {
  Statement statement = TRY(database.query(pragma));
  std::int64_t value = 0;
  if (TRY(statement.next())) statement.read(value);
  return value;
}

Result<void> apply(Database& database, std::string_view sql, std::size_t version) {
  // A pragma takes no parameters; both numbers are ours.
  std::string text = "BEGIN IMMEDIATE;" + std::string(sql) +
                     ";PRAGMA user_version = " + std::to_string(version) +
                     ";PRAGMA application_id = " + std::to_string(kApplicationId) + ";COMMIT;";
  auto applied = database.script(text);
  if (!applied && database.in_transaction()) TRY(database.script("ROLLBACK"));
  return applied;
}

}  // namespace

std::span<const std::string_view> schema_migrations() { return kMigrations; }

Result<std::int64_t> schema_version(Database& database) {
  return number(database, "PRAGMA user_version");
}

Result<void> migrate(Database& database, std::span<const std::string_view> migrations) {
  const std::string& path = database.path().native();
  std::int64_t owner = TRY(number(database, "PRAGMA application_id"));
  std::int64_t version = TRY(schema_version(database));
  std::int64_t tables = TRY(number(database, "SELECT count(*) FROM sqlite_schema"));
  bool is_new = owner == 0 && version == 0 && tables == 0;
  if (!is_new && (owner != kApplicationId || version <= 0))
    return fail(Errc::conflict, path + " is a database of another program, or damaged",
                "choose another folder, or put a backup of this file in its place");
  auto newest = static_cast<std::int64_t>(migrations.size());
  if (version > newest)
    return fail(Errc::conflict,
                path + " was written by a newer version of this program (schema " +
                    std::to_string(version) + ", this one knows " + std::to_string(newest) + ")",
                "run the newer version, or restore the backup made before the update");
  for (std::size_t done = static_cast<std::size_t>(version); done < migrations.size(); ++done)
    TRY(apply(database, migrations[done], done + 1));
  return {};
}

}  // namespace asr
