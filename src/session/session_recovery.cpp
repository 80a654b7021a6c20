// What an earlier life of this server left: sandboxes that live, records of those that do not, and
// files that belong to nobody.
#include <fcntl.h>

#include <set>

#include "base/clock.hpp"
#include "os/file.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"

namespace asr {

namespace {

Result<std::vector<SessionRecord>> alive_records(Database& database) {
  std::vector<SessionRecord> all;
  SessionFilter filter;
  filter.states = {"creating", "ready", "paused", "stopped"};
  filter.limit = 1000;
  do {
    SessionPage page = TRY(list_sessions(database, filter));
    for (SessionRecord& record : page.sessions) all.push_back(std::move(record));
    filter.cursor = page.cursor;
  } while (!filter.cursor.empty());
  return all;
}

// While a session goes back it has two sandboxes of its name: what was written down decides.
template <class Inherited>
std::shared_ptr<Sandbox> heir_of(const SessionRecord& record, const Inherited& inherited) {
  auto [begin, end] = inherited.equal_range(record.id);
  for (auto it = begin; it != end; ++it)
    if (it->second->id().text == record.sandbox) return it->second;
  return begin == end ? nullptr : begin->second;
}

}  // namespace

asio::awaitable<Result<void>> Sessions::recover() {
  auto look = [](Database& database) { return newest_event_id(database); };
  events_.set_newest(CO_TRY(co_await store_.read(std::move(look))));
  auto living = [](Database& database) { return alive_records(database); };
  std::vector<SessionRecord> records = CO_TRY(co_await store_.read(std::move(living)));
  recover_spool(records);
  snapshots_->take_up();
  saved_->sweep();
  auto inheriting = inherit(records);
  Inherited inherited = co_await std::move(inheriting);
  std::vector<SessionRecord> lost;
  std::size_t adopted = 0;
  for (SessionRecord& record : records) {
    std::shared_ptr<Sandbox> sandbox = heir_of(record, inherited);
    if (!sandbox && !record.persistent) {
      lost.push_back(std::move(record));
      continue;
    }
    if (sandbox) ++adopted;
    std::string id = record.id;
    auto revived = revive(record, sandbox);
    if (revived && sandbox) {
      // Without it the session has no network, which is what it must have rather than too much.
      auto opening = open_network(*revived, sandbox);
      if (auto opened = co_await std::move(opening); !opened)
        log_.error("a session has lost its network",
                   {{"session", id}, {"why", opened.error().what}});
    }
    if (!revived) {
      log_.error("a session cannot be taken up", {{"session", id}, {"why", revived.error().what}});
      lost.push_back(std::move(record));
      continue;
    }
    // What was written down may be older than what is.
    std::string state(to_string((*revived)->state()));
    if ((*revived)->record().state == state) continue;
    SessionRecord& kept = (*revived)->record();
    Rest rest{kept.expires_ms, kept.left_ms};
    if (state == "paused" || kept.state == "paused") rest = rest_of(**revived, (*revived)->state());
    auto change = [id, state, rest](Database& database) {
      return update_session_rest(database, id, state, rest.expires_ms, rest.left_ms);
    };
    CO_TRY(co_await store_.write(std::move(change)));
    kept.state = state;
    kept.left_ms = rest.left_ms;
    (*revived)->set_life(rest.expires_ms, kept.idle_ms);
  }
  inherited.clear();  // Those nobody knows end here.
  if (adopted > 0) log_.info("sessions go on", {{"count", std::to_string(adopted)}});
  auto settling = settle_lost(std::move(lost));
  CO_TRY(co_await std::move(settling));
  auto sweeping = sweep_files();
  co_await std::move(sweeping);
  watch_life();
  watch_usage();
  co_return Result<void>();
}

// What sessions wrote of themselves in their first seconds.
void Sessions::recover_spool(const std::vector<SessionRecord>& records) {
  std::set<std::string> alive;
  for (const SessionRecord& record : records) alive.insert(record.id);
  auto is_wanted = [&](const std::filesystem::path& file) {
    return alive.contains(file.parent_path().filename().native());
  };
  if (auto recovered = spool_->recover(is_wanted); !recovered)
    log_.error("what sessions did last is not known", {{"why", recovered.error().what}});
}

asio::awaitable<Sessions::Inherited> Sessions::inherit(std::vector<SessionRecord> records) {
  std::map<std::string, std::vector<KnownSandbox>> known;  // by provider
  for (const SessionRecord& record : records) {
    KnownSandbox sandbox{record.sandbox, record.id, {}, record.state == "paused"};
    // One whose record is damaged cannot be revived, and is told as lost then.
    if (auto secrets = store_.secrets().open(record.sealed, record.id))
      if (auto request = stored_request(record.spec, *secrets))
        sandbox.spec = std::move(request->spec);
    known[record.provider].push_back(std::move(sandbox));
  }
  Inherited inherited;
  for (const auto& [name, provider] : providers_) {
    auto adopting = provider->adopt(std::move(known[name]));
    auto sandboxes = co_await std::move(adopting);
    for (auto& sandbox : sandboxes) {
      std::string label = sandbox->label();
      inherited.emplace(std::move(label), std::move(sandbox));
    }
  }
  co_return inherited;
}

Result<std::shared_ptr<Session>> Sessions::revive(SessionRecord record,
                                                  std::shared_ptr<Sandbox> sandbox) {
  if (!providers_.contains(record.provider))
    return fail(Errc::not_found, "there is no provider " + record.provider);
  std::string secrets = TRY(store_.secrets().open(record.sealed, record.id));
  SessionRequest request = TRY(stored_request(record.spec, secrets));
  auto commands =
      TRY(CommandJournal::read(folder_of(record.id) / kJournalFile, kMostCommandOutput));
  auto session =
      std::make_shared<Session>(Context::Home{executor_, interpreters_}, record, std::move(request),
                                sandbox, journal_of(record.id, nullptr), artifacts_of(record.id));
  begin_history(session, {}, nullptr);
  bool paused = sandbox && sandbox->state() == SandboxState::paused;
  session->set_state(!sandbox ? SessionState::stopped
                     : paused ? SessionState::paused
                              : SessionState::ready);
  session->take_up(std::move(commands), command_end(session));
  take_up_checkpoints(*session);
  ++alive_of_[session->owner()];
  take_in(session);
  if (sandbox) watch_sandbox(session, sandbox);
  return session;
}

asio::awaitable<Result<void>> Sessions::settle_lost(std::vector<SessionRecord> lost) {
  if (lost.empty()) co_return Result<void>();
  std::vector<EventRecord> events;
  std::map<std::string, std::int64_t> keeping;  // bytes of artifacts, by session
  for (const SessionRecord& record : lost) {
    if (record.keep_artifacts)
      keeping[record.id] =
          static_cast<std::int64_t>(artifacts_of(record.id).bytes()) + keep_history(record.id);
    std::string why = record.expires_ms != 0 && record.expires_ms <= now_ms()
                          ? "expired while the server was down"
                          : "lost when the server ended";
    events.push_back({0, now_ms(), "session.gone", record.id, record.owner,
                      to_text(json::object{{"reason", why}})});
  }
  auto mark = [events, keeping](Database& database) -> Result<std::vector<EventRecord>> {
    std::vector<EventRecord> told = events;
    for (EventRecord& event : told) {
      json::value data = TRY(parse_json(event.data));
      std::string why(data.at("reason").get_string());
      TRY(remove_volume_uses(database, event.session));
      TRY(update_session_state(database, event.session, "gone", why, event.at_ms));
      if (auto kept = keeping.find(event.session); kept != keeping.end()) {
        TRY(update_session_artifacts(database, event.session, true, kept->second));
        TRY(forget_artifacts_beyond(database, event.owner, Artifacts::kMostKeptBytes));
      }
      event.id = TRY(append_event(database, event));
    }
    return told;
  };
  std::vector<EventRecord> told = CO_TRY(co_await store_.write(std::move(mark)));
  for (EventRecord& event : told) events_.announce(std::move(event));
  log_.info("sessions of an earlier run have ended", {{"count", std::to_string(lost.size())}});
  co_return Result<void>();
}

asio::awaitable<void> Sessions::sweep_files() {
  std::error_code ec;
  std::vector<std::string> strangers;
  for (const auto& entry :
       std::filesystem::directory_iterator(settings_.storage / kSessionFolders, ec)) {
    std::string id = entry.path().filename().native();
    if (is_session_id(id) && !live_.contains(id)) strangers.push_back(std::move(id));
  }
  for (const std::string& id : strangers) {
    bool has_disk = std::filesystem::exists(settings_.storage / disk_of(id), ec);
    auto removing = remove_files(id, has_disk);
    co_await std::move(removing);
  }
  auto sweeping_artifacts = sweep_artifacts();
  co_await std::move(sweeping_artifacts);
  auto sweeping = volumes_->sweep(settings_.storage);
  co_await std::move(sweeping);
}

}  // namespace asr
