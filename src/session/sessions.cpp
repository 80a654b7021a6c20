#include "session/sessions.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "session/history_steps.hpp"
#include "session/initial_files.hpp"
#include "session/provider_choice.hpp"
#include "session/session_files.hpp"
#include "session/trail.hpp"
#include "store/share_records.hpp"

namespace asr {

namespace {

constexpr unsigned kLooksAtOnce = 4;  // into saved states; each takes a sandbox

Error unknown_session() {
  return Error(Errc::not_found, "there is no such session",
               "GET /api/sessions lists those you may see");
}

}  // namespace

Sessions::Sessions(asio::any_io_executor executor, Store& store, const Log& log, NodeName node,
                   SessionSettings settings)
    : executor_(std::move(executor)),
      store_(store),
      log_(log),
      node_(std::move(node)),
      settings_(std::move(settings)),
      secrets_(store),
      saved_budget_(settings_.most_saved_per_key, settings_.most_saved),
      spool_(std::make_shared<Spool>(settings_.storage)),
      looking_(executor_, kLooksAtOnce),
      events_(executor_, store),
      life_changed_(executor_) {}

Sessions::~Sessions() { *stopped_ = true; }

void Sessions::add_provider(std::unique_ptr<Provider> provider) {
  if (!storage_) {
    storage_ = provider.get();
    volumes_ = std::make_unique<Volumes>(executor_, store_, *storage_, settings_.volumes);
    saved_ = std::make_unique<SavedStore>(settings_.storage / kLayerFolder, store_.secrets());
    snapshots_ =
        std::make_unique<Snapshots>(settings_.storage / kSnapshotFolders, *saved_, saved_budget_);
    interpreters_ =
        std::make_shared<WarmInterpreters>(executor_, *storage_, log_, settings_.interpreters);
  }
  providers_.emplace(std::string(provider->name()), std::move(provider));
}

Result<void> Sessions::admit(const Caller& caller, const SessionRequest& request) const {
  if (caller.role == Role::viewer)
    return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  auto provider = providers_.find(request.provider);
  if (provider == providers_.end())
    return fail(Errc::invalid, "/provider: there is none called \"" + request.provider + "\"",
                "GET /api/providers lists them");
  if (request.spec.environment.kind != Environment::Kind::host && caller.role < Role::oper)
    return fail(Errc::denied, "this key may not name folders and archives of the server",
                "use an environment the server offers, or a key with role operator");
  if (auto allowed = check_allowed(request.network, caller.role); !allowed)
    return fail(Errc::denied, "/network/allow: " + allowed.error().what, allowed.error().hint);
  // What one may not have is not told either.
  TRY(check(needs_of(request, life_of(request.ttl)), *provider->second));
  if (is_full())
    return fail(Errc::exhausted, "the server holds as many sessions as it may",
                "delete some, or try again later");
  std::uint32_t most =
      caller.most_sessions != 0 ? caller.most_sessions : settings_.most_sessions_per_key;
  auto own = alive_of_.find(caller.id);
  if (own != alive_of_.end() && own->second >= most)
    return fail(Errc::exhausted,
                "this key has " + std::to_string(own->second) + " sessions, as many as it may",
                "delete some of them");
  return {};
}

Result<void> Sessions::choose_provider(SessionRequest& request) const {
  if (request.provider != kAnyProvider) return {};
  std::vector<const Provider*> order;  // This machine first: it is the nearest.
  if (storage_) order.push_back(storage_);
  for (const auto& [name, provider] : providers_)
    if (provider.get() != storage_) order.push_back(provider.get());
  Needs needs = needs_of(request, life_of(request.ttl));
  ProviderChoice choice = TRY(asr::choose_provider(needs, order));
  request.provider = std::move(choice.name);
  request.provider_reason = std::move(choice.reason);
  return {};
}

asio::awaitable<Result<std::shared_ptr<Session>>> Sessions::create(Caller caller,
                                                                   SessionRequest request,
                                                                   Beginning beginning) {
  CO_TRY(choose_provider(request));
  CO_TRY(admit(caller, request));
  if (!request.snapshot.empty() && !beginning.from) {
    auto finding = snapshots_->find(caller.id, request.snapshot);
    auto found = CO_TRY(co_await std::move(finding));
    request.spec.environment = std::move(found.environment);
    beginning.from = std::move(found.state);
    CO_TRY(admit(caller, request));  // What may be named may have changed since.
  }
  std::string owner = caller.id;
  ++alive_of_[owner];
  ++creating_;
  auto making = make(std::move(caller), std::move(request), std::move(beginning));
  auto session = co_await std::move(making);
  --creating_;
  if (!session) {
    ++totals_.failed;
    if (--alive_of_[owner] == 0) alive_of_.erase(owner);
  }
  co_return session;
}

// The sandbox of a session, before it is kept under its name.
asio::awaitable<Result<std::shared_ptr<Sandbox>>> Sessions::bring_up(std::string id,
                                                                     SessionRequest request,
                                                                     std::vector<Volume> volumes) {
  Provider& provider = *providers_.at(request.provider);
  SandboxSpec spec = std::move(request.spec);
  if (request.persistent) spec.disk = PersistentDisk{disk_of(id)};
  spec.volumes = std::move(volumes);
  SandboxWish wish{std::move(id), std::move(request.image)};
  auto creating = provider.create(std::move(spec), std::move(wish));
  co_return co_await std::move(creating);
}

Aside<void> Sessions::begin_keeping(const std::string& provider, std::shared_ptr<Sandbox> sandbox,
                                    std::string id) {
  auto keep = [](bool possible, std::shared_ptr<Sandbox> what,
                 std::string label) -> asio::awaitable<Result<void>> {
    if (!possible) co_return Result<void>();
    auto asking = what->keep(std::move(label));
    co_return co_await std::move(asking);
  };
  bool possible = providers_.at(provider)->can_keep();
  return {executor_, keep(possible, std::move(sandbox), std::move(id))};
}

std::chrono::seconds Sessions::life_of(std::optional<std::chrono::seconds> wanted) const {
  auto ttl = wanted.value_or(settings_.ttl);
  if (settings_.most_ttl.count() > 0 && (ttl.count() == 0 || ttl > settings_.most_ttl))
    ttl = settings_.most_ttl;
  return ttl;
}

std::int64_t Sessions::expiry_of(std::optional<std::chrono::seconds> wanted) const {
  auto ttl = life_of(wanted);
  return ttl.count() == 0 ? 0 : now_ms() + ttl.count() * 1000;
}

SessionRecord Sessions::record_of(const Caller& caller, const SessionRequest& request,
                                  std::string id, const Sandbox& sandbox) const {
  SessionRecord record;
  record.id = std::move(id);
  record.owner = caller.id;
  record.provider = request.provider;
  record.environment = request.environment;
  record.state = "ready";
  record.spec = to_text(json_of(request));
  json::object labels;
  for (const auto& [name, value] : request.labels) labels[name] = value;
  record.labels = to_text(labels);
  record.isolation = to_text(json_of(sandbox.isolation()));
  record.url = settings_.url_base + "/api/sessions/" + record.id;
  record.sealed = store_.secrets().seal(secrets_of(request), record.id);
  record.sandbox = sandbox.id().text;
  record.persistent = request.persistent;
  record.keep_artifacts = request.keep_artifacts;
  record.created_ms = record.active_ms = now_ms();
  record.expires_ms = expiry_of(request.ttl);
  record.idle_ms = request.idle.value_or(settings_.idle).count() * 1000;
  return record;
}

std::filesystem::path Sessions::folder_of(const std::string& id) const {
  return settings_.storage / kSessionFolders / id;
}

Artifacts Sessions::artifacts_of(const std::string& id) const {
  return Artifacts(settings_.storage / kArtifactFolders / id);
}

std::shared_ptr<CommandJournal> Sessions::journal_of(const std::string& id,
                                                     std::shared_ptr<Spool> spool) {
  auto complain = [this, stopped = stopped_, id](const Error& error) {
    if (!*stopped)
      log_.warning("output of commands cannot be kept", {{"session", id}, {"why", error.what}});
  };
  return std::make_shared<CommandJournal>(folder_of(id) / kJournalFile, std::move(complain),
                                          std::move(spool));
}

asio::awaitable<Result<std::shared_ptr<Session>>> Sessions::make(Caller caller,
                                                                 SessionRequest request,
                                                                 Beginning beginning) {
  std::string id = make_session_id(node_);
  auto placing = volumes_->place(caller.id, request.volumes);
  Volumes::Placed placed = CO_TRY(co_await std::move(placing));
  bool persistent = request.persistent;
  auto making =
      make_with(std::move(caller), std::move(request), id, std::move(placed), std::move(beginning));
  auto session = co_await std::move(making);
  if (!session && persistent) {
    auto removing = remove_files(std::move(id), true);
    co_await std::move(removing);
  }
  co_return session;
}

asio::awaitable<Result<std::shared_ptr<Session>>> Sessions::make_with(Caller caller,
                                                                      SessionRequest request,
                                                                      std::string id,
                                                                      Volumes::Placed volumes,
                                                                      Beginning beginning) {
  auto from = std::move(beginning.from);
  bool has_files = beginning.sandbox != nullptr;
  std::shared_ptr<Sandbox> sandbox = std::move(beginning.sandbox);
  if (!sandbox) {
    auto bringing = bring_up(id, request, std::move(volumes.mounts));
    sandbox = CO_TRY(co_await std::move(bringing));
  }
  auto keeping = begin_keeping(request.provider, sandbox, id);
  json::array files = keeps_history(request) ? about_files(request.files) : json::array();
  auto furnishing = put_files(sandbox, std::move(request.files));
  CO_TRY(co_await std::move(furnishing));
  if (from && !has_files) {
    auto restoring = restore_files(sandbox, from->files);
    CO_TRY(co_await std::move(restoring));
  }

  SessionRecord record = record_of(caller, request, std::move(id), *sandbox);
  auto session =
      std::make_shared<Session>(Context::Home{executor_, interpreters_}, record, std::move(request),
                                sandbox, journal_of(record.id, spool_), artifacts_of(record.id));
  begin_history(session, std::move(files), spool_);
  auto opening = open_network(session, sandbox);
  CO_TRY(co_await std::move(opening));
  if (from) {
    auto waiting = keeping.result();
    note_kept(*session, co_await std::move(waiting));
    auto reviving = session->contexts().revive(sandbox, from->contexts);
    session->contexts().replace(CO_TRY(co_await std::move(reviving)));
    session->set_origin(from);
  }
  EventRecord event =
      event_of(*session, "session.ready",
               {{"environment", record.environment}, {"provider", record.provider}});
  auto insert = [record, uses = std::move(volumes.uses)](Database& database) -> Result<void> {
    TRY(insert_session(database, record));
    for (VolumeUse use : uses) {
      use.session = record.id;
      TRY(add_volume_use(database, use));
    }
    return {};
  };
  auto work = with_trail(std::move(insert), event, audit_of(caller, "session.create", record.id),
                         store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  take_in(session);
  note_activity(session);
  watch_sandbox(session, sandbox);
  if (!from) {
    auto waiting = keeping.result();
    note_kept(*session, co_await std::move(waiting));
  }
  ++totals_.created;
  events_.announce(std::move(event));
  co_return session;
}

void Sessions::note_kept(const Session& session, const Result<void>& kept) const {
  if (kept) return;
  log_.error("a session will end with this server",
             {{"session", session.id()}, {"why", kept.error().what}});
}

void Sessions::take_in(const std::shared_ptr<Session>& session) {
  live_.emplace(session->id(), session);
  if (session->deadline() < next_look_) life_changed_.ring();
}

asio::awaitable<Result<void>> Sessions::check_access(Caller caller,
                                                     std::shared_ptr<Session> session,
                                                     Access access) {
  bool all = caller.role >= Role::oper;
  if (!all && session->owner() != caller.id) {
    auto look = [id = session->id(), key = caller.id](Database& database) {
      return access_of(database, id, key);
    };
    std::optional<std::string> shared = CO_TRY(co_await store_.read(std::move(look)));
    if (!shared) co_return fail(unknown_session());
    if (access == Access::use && *shared != "read-write")
      co_return fail(Errc::denied, "this session is shared with you for reading only");
  }
  if (access == Access::use && caller.role == Role::viewer)
    co_return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  co_return Result<void>();
}

asio::awaitable<Result<std::shared_ptr<Session>>> Sessions::find(Caller caller, std::string id,
                                                                 Access access) {
  auto found = live_.find(id);
  if (found == live_.end()) co_return fail(unknown_session());
  std::shared_ptr<Session> session = found->second;
  auto checking = check_access(caller, session, access);
  CO_TRY(co_await std::move(checking));
  if (session->has_lost_sandbox()) {  // and nobody has told us yet
    auto giving_up = give_up(session, "its sandbox ended", caller);
    (void)co_await std::move(giving_up);
  }
  if (session->state() == SessionState::gone) co_return fail(unknown_session());
  note_activity(session);
  co_return session;
}

Result<std::shared_ptr<Session>> Sessions::find_for_preview(const std::string& id) {
  auto found = live_.find(id);
  if (found == live_.end()) return fail(unknown_session());
  note_activity(found->second);
  return found->second;
}

void Sessions::each_live(const std::function<void(const Session&)>& use) const {
  for (const auto& [id, session] : live_) use(*session);
}

asio::awaitable<Result<SessionRecord>> Sessions::find_record(Caller caller, std::string id) {
  auto finding = find(caller, id, Access::look);
  auto live = co_await std::move(finding);
  if (live) co_return (*live)->record();
  if (!is_session_id(id)) co_return fail(unknown_session());
  auto look = [id](Database& database) { return find_session(database, id); };
  auto record = co_await store_.read(std::move(look));
  if (!record || (record->owner != caller.id && caller.role < Role::oper))
    co_return fail(unknown_session());
  co_return std::move(*record);
}

asio::awaitable<Result<SessionPage>> Sessions::list(Caller caller, SessionFilter filter) {
  if (caller.role < Role::oper) filter.visible_to = caller.id;
  auto look = [filter](Database& database) { return list_sessions(database, filter); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<std::int64_t>> Sessions::count(Caller caller, SessionFilter filter) {
  if (caller.role < Role::oper) filter.visible_to = caller.id;
  auto look = [filter](Database& database) { return count_sessions(database, filter); };
  co_return co_await store_.read(std::move(look));
}

asio::awaitable<Result<void>> Sessions::patch(Caller caller, std::shared_ptr<Session> session,
                                              Patch patch) {
  SessionRecord record = session->record();
  if (patch.labels) {
    json::object labels;
    for (const auto& [name, value] : *patch.labels) labels[name] = value;
    record.labels = to_text(labels);
  }
  if (patch.ttl) {
    auto life = life_of(patch.ttl);
    auto age = std::chrono::milliseconds(now_ms() - record.created_ms);
    if (life.count() > 0) life += std::chrono::floor<std::chrono::seconds>(age);
    CO_TRY(check_life(life, *providers_.at(record.provider)));
    std::int64_t expires_ms = expiry_of(patch.ttl);
    // The time of one that stands still begins when it goes on.
    if (session->state() == SessionState::paused)
      record.left_ms = expires_ms == 0 ? 0 : expires_ms - now_ms();
    else
      record.expires_ms = expires_ms;
  }
  if (patch.idle) record.idle_ms = patch.idle->count() * 1000;
  record.keep_artifacts = patch.keep_artifacts.value_or(record.keep_artifacts);
  auto change = [record, keeping = patch.keep_artifacts](Database& database) -> Result<void> {
    TRY(update_session_labels(database, record.id, record.labels));
    if (keeping) TRY(update_session_artifacts(database, record.id, *keeping, 0));
    TRY(update_session_rest(database, record.id, record.state, record.expires_ms, record.left_ms));
    return update_session_times(database, record.id, record.expires_ms, record.idle_ms,
                                record.active_ms);
  };
  EventRecord event = event_of(*session, "session.changed", {});
  auto work = with_trail(std::move(change), event, audit_of(caller, "session.change", record.id),
                         store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  session->record().labels = record.labels;
  session->record().left_ms = record.left_ms;
  session->record().keep_artifacts = record.keep_artifacts;
  session->set_life(record.expires_ms, record.idle_ms);
  events_.announce(std::move(event));
  life_changed_.ring();
  co_return Result<void>();
}

asio::awaitable<Result<void>> Sessions::share(Caller caller, std::shared_ptr<Session> session,
                                              std::string key_id,
                                              std::optional<std::string> access) {
  if (session->owner() != caller.id && caller.role < Role::oper)
    co_return fail(Errc::denied, "only its owner may share a session");
  json::object detail{{"key", key_id}, {"access", access ? *access : "none"}};
  EventRecord event = event_of(*session, "session.shared", detail);
  auto change = [id = session->id(), key_id, access](Database& database) -> Result<void> {
    if (access) return set_share(database, {id, key_id, *access});
    if (!TRY(remove_share(database, id, key_id)))
      return fail(Errc::not_found, "the session is not shared with that key");
    return {};
  };
  auto work =
      with_trail(std::move(change), event, audit_of(caller, "session.share", session->id(), detail),
                 store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  events_.announce(std::move(event));
  co_return Result<void>();
}

Session::CommandEnd Sessions::command_end(const std::shared_ptr<Session>& session) {
  return [this, stopped = stopped_,
          weak = std::weak_ptr(session)](const std::shared_ptr<SessionCommand>& command) {
    if (!*stopped) command_ended(weak, command);
  };
}

asio::awaitable<Result<std::shared_ptr<SessionCommand>>> Sessions::start_command(
    Caller caller, std::shared_ptr<Session> session, CommandRequest request) {
  std::optional<bool> undoable;
  if (session->request().auto_checkpoint) {
    auto saving = save_before(session, request.history ? request.command.argv.back() : "");
    undoable = co_await std::move(saving);
  }
  auto starting = session->start_command(std::move(request), command_end(session));
  auto command = CO_TRY(co_await std::move(starting));
  command->set_undoable(undoable);
  ++totals_.commands;
  // Told, not waited for: the command runs already.
  auto entry = audit_of(caller, "command.start", session->id(), {{"command_id", command->id()}});
  auto record = [this](AuditEntry what) -> asio::awaitable<void> {
    auto work = [what, &secrets = store_.secrets()](Database& database) {
      return append_audit(database, secrets, what);
    };
    (void)co_await store_.write_soon(std::move(work));
  };
  asio::co_spawn(executor_, record(std::move(entry)), asio::detached);
  co_return command;
}

EventRecord Sessions::event_of(const Session& session, std::string type, json::object data) const {
  return {0, now_ms(), std::move(type), session.id(), session.owner(), to_text(data)};
}

asio::awaitable<void> Sessions::tell(EventRecord event) {
  auto work = [event](Database& database) { return append_event(database, event); };
  auto id = co_await store_.write_soon(std::move(work));
  if (!id) co_return;
  event.id = *id;
  events_.announce(std::move(event));
}

void Sessions::command_ended(const std::weak_ptr<Session>& session,
                             const std::shared_ptr<SessionCommand>& command) {
  ++totals_.command_ends[std::string(status_word(command->status()->reason))];
  auto of = session.lock();
  if (!of || of->state() == SessionState::gone) return;
  json::object summary = command->describe(SessionCommand::Detail::summary);
  if (History* history = of->history()) history->add(command_step(*command, summary));
  // What was run may hold secrets, and events are kept.
  summary.erase("argv");
  EventRecord event = event_of(*of, "command.ended", std::move(summary));
  asio::co_spawn(executor_, tell(std::move(event)), asio::detached);
}

SessionCounts Sessions::counts() const {
  SessionCounts counts = totals_;
  for (const auto& [id, session] : live_) {
    SessionState state = session->state();
    ++(state == SessionState::paused    ? counts.paused
       : state == SessionState::stopped ? counts.stopped
                                        : counts.ready);
  }
  counts.creating = creating_;
  return counts;
}

}  // namespace asr
