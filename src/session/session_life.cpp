// How sessions rest, go on and end, by somebody's wish or by themselves, and how it is remembered
// that they were used.
#include <fcntl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "base/scope_exit.hpp"
#include "os/file.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr auto kKeepActivityAfter = std::chrono::seconds(5);
constexpr auto kSweepEvery = std::chrono::hours(1);

Caller the_server() { return Caller{"server", Role::admin, 0, "", 0}; }

}  // namespace

// The wall clock's times of a session that begins or ceases to stand still.
Sessions::Rest Sessions::rest_of(const Session& session, SessionState state) const {
  const SessionRecord& record = session.record();
  if (state == SessionState::ready) return {record.left_ms == 0 ? 0 : now_ms() + record.left_ms, 0};
  std::int64_t keep = std::chrono::milliseconds(settings_.keep_paused).count();
  Rest rest{keep == 0 ? 0 : now_ms() + keep, 0};
  if (record.expires_ms == 0) return rest;
  rest.left_ms = record.expires_ms - now_ms();
  // One whose time is over has all of it again when it goes on.
  if (rest.left_ms <= 0) rest.left_ms = expiry_of(session.request().ttl) - now_ms();
  rest.left_ms = std::max<std::int64_t>(rest.left_ms, 1);
  return rest;
}

asio::awaitable<Result<void>> Sessions::change_rest(std::shared_ptr<Session> session,
                                                    SessionState state, Caller actor) {
  std::string word(to_string(state));
  EventRecord event = event_of(*session, "session." + word, {});
  Rest rest = rest_of(*session, state);
  auto change = [id = session->id(), word, rest](Database& database) {
    return update_session_rest(database, id, word, rest.expires_ms, rest.left_ms);
  };
  auto work = with_trail(std::move(change), event,
                         audit_of(actor, "session." + word, session->id()), store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  session->set_state(state);
  session->record().state = word;
  session->record().left_ms = rest.left_ms;
  session->set_life(rest.expires_ms, session->record().idle_ms);
  session->touch();
  events_.announce(std::move(event));
  life_changed_.ring();
  co_return Result<void>();
}

asio::awaitable<Result<void>> Sessions::pause(Caller caller, std::shared_ptr<Session> session) {
  auto turn = co_await session->branching().take();  // Or it would be another's that stands still.
  auto pausing = pause_in_turn(std::move(caller), std::move(session));
  co_return co_await std::move(pausing);
}

asio::awaitable<Result<void>> Sessions::pause_in_turn(Caller caller,
                                                      std::shared_ptr<Session> session) {
  auto sandbox = CO_TRY(session->sandbox());
  auto pausing = sandbox->pause();
  CO_TRY(co_await std::move(pausing));
  auto changing = change_rest(session, SessionState::paused, caller);
  co_return co_await std::move(changing);
}

asio::awaitable<Result<void>> Sessions::resume(Caller caller, std::shared_ptr<Session> session) {
  auto turn = co_await session->branching().take();
  auto resuming = resume_in_turn(std::move(caller), std::move(session));
  co_return co_await std::move(resuming);
}

asio::awaitable<Result<void>> Sessions::resume_in_turn(Caller caller,
                                                       std::shared_ptr<Session> session) {
  if (session->state() == SessionState::stopped) {
    auto starting = start_again(std::move(caller), std::move(session));
    co_return co_await std::move(starting);
  }
  if (session->state() != SessionState::paused)
    co_return fail(Errc::conflict, "the session is not paused");
  auto sandbox = CO_TRY(session->sandbox(Session::Want::alive));
  auto resuming = sandbox->resume();
  CO_TRY(co_await std::move(resuming));
  // One that was paused when a server took it up could not be told whom to trust.
  auto writing = write_trust(session, sandbox);
  CO_TRY(co_await std::move(writing));
  auto changing = change_rest(session, SessionState::ready, caller);
  co_return co_await std::move(changing);
}

asio::awaitable<Result<std::shared_ptr<Session>>> Sessions::find_awake(std::string id) {
  auto session = CO_TRY(find_for_preview(id));
  if (session->state() == SessionState::ready) co_return session;
  bool wakes = session->request().wake_on_traffic && session->state() != SessionState::gone;
  if (!wakes) co_return fail(session->sandbox().error());
  auto turn = co_await session->branching().take();
  // Others may have come first, and it may be gone by now.
  if (session->state() == SessionState::ready) co_return session;
  auto resuming = resume_in_turn(the_server(), session);
  CO_TRY(co_await std::move(resuming));
  co_return session;
}

// Alone, because whoever saves it just now may take long, and others are over, too.
asio::awaitable<void> Sessions::rest_or_end(std::shared_ptr<Session> session) {
  auto stopped = stopped_;
  auto turn = co_await session->branching().take();
  // Somebody may have come first.
  if (*stopped || session->state() != SessionState::ready || !session->is_over()) co_return;
  auto pausing = pause_in_turn(the_server(), session);
  auto paused = co_await std::move(pausing);
  if (paused || *stopped) co_return;
  log_.error("a session could not be paused when its time was over, and ends",
             {{"session", session->id()}, {"why", paused.error().what}});
  auto giving_up = give_up(session, "expired", the_server());
  (void)co_await std::move(giving_up);
}

asio::awaitable<Result<void>> Sessions::start_again(Caller caller,
                                                    std::shared_ptr<Session> session) {
  session->set_state(SessionState::creating);  // One at a time.
  ScopeExit back([&] {
    session->set_sandbox(nullptr);
    session->set_state(SessionState::stopped);
  });
  auto placing = volumes_->place(session->owner(), session->request().volumes);
  Volumes::Placed placed = CO_TRY(co_await std::move(placing));
  auto bringing = bring_up(session->id(), session->request(), std::move(placed.mounts));
  std::shared_ptr<Sandbox> sandbox = CO_TRY(co_await std::move(bringing));
  auto aside = begin_keeping(session->request().provider, sandbox, session->id());
  auto keeping = aside.result();
  CO_TRY(co_await std::move(keeping));
  session->set_sandbox(sandbox);
  auto opening = open_network(session, sandbox);
  CO_TRY(co_await std::move(opening));

  SessionRecord record = session->record();
  record.state = "ready";
  record.sandbox = sandbox->id().text;
  record.isolation = to_text(json_of(sandbox->isolation()));
  record.expires_ms = expiry_of(session->request().ttl);
  record.left_ms = 0;
  record.active_ms = now_ms();
  EventRecord event = event_of(*session, "session.ready", {{"resumed", true}});
  auto change = [record](Database& database) -> Result<void> {
    TRY(update_session_rest(database, record.id, record.state, record.expires_ms, 0));
    TRY(update_session_sandbox(database, record.id, record.sandbox, record.isolation, record.url));
    return update_session_times(database, record.id, record.expires_ms, record.idle_ms,
                                record.active_ms);
  };
  auto work = with_trail(std::move(change), event, audit_of(caller, "session.ready", record.id),
                         store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  back.dismiss();
  session->record() = record;
  session->set_state(SessionState::ready);
  session->set_life(record.expires_ms, record.idle_ms);
  session->touch();
  watch_sandbox(session, sandbox);
  events_.announce(std::move(event));
  life_changed_.ring();
  co_return Result<void>();
}

asio::awaitable<Result<void>> Sessions::remove(Caller caller, std::shared_ptr<Session> session,
                                               std::optional<bool> keep_artifacts) {
  auto ending = end(std::move(session), "deleted", std::move(caller), keep_artifacts);
  co_return co_await std::move(ending);
}

// Whether or not it can be written down: what must end, ends.
asio::awaitable<Result<void>> Sessions::end(std::shared_ptr<Session> session, std::string reason,
                                            Caller actor, std::optional<bool> keep_artifacts) {
  if (session->state() == SessionState::gone) co_return Result<void>();
  if (session->state() == SessionState::creating)
    co_return fail(Errc::conflict, "the session is being started or stopped",
                   "try again in a moment");
  auto sandbox = session->sandbox(Session::Want::alive);
  session->set_state(SessionState::gone);
  EventRecord event = event_of(*session, "session.gone", {{"reason", reason}});
  bool keeps = keep_artifacts.value_or(session->record().keep_artifacts);
  std::int64_t bytes = 0;
  if (keeps)
    bytes = static_cast<std::int64_t>(session->artifacts().bytes()) + keep_history(*session);
  auto others = std::make_shared<std::int64_t>(0);  // that keep theirs no longer
  auto change = [id = session->id(), owner = session->owner(), reason, at = event.at_ms, keeps,
                 kept = session->record().keep_artifacts, bytes,
                 others](Database& database) -> Result<void> {
    TRY(remove_volume_uses(database, id));
    TRY(update_session_state(database, id, "gone", reason, at));
    if (keeps || kept) TRY(update_session_artifacts(database, id, keeps, bytes));
    if (keeps) *others = TRY(forget_artifacts_beyond(database, owner, Artifacts::kMostKeptBytes));
    return {};
  };
  auto work = with_trail(std::move(change), event,
                         audit_of(actor, "session.delete", session->id(), {{"reason", reason}}),
                         store_.secrets());
  auto stored = co_await store_.write(std::move(work));
  live_.erase(session->id());
  if (auto own = alive_of_.find(session->owner()); own != alive_of_.end() && --own->second == 0)
    alive_of_.erase(own);
  ++totals_.ended;
  session->record().state = "gone";
  session->forget();
  if (sandbox) {
    auto destroying = (*sandbox)->destroy();
    auto destroyed = co_await std::move(destroying);
    if (!destroyed)
      log_.error("a sandbox could not be ended",
                 {{"session", session->id()}, {"why", destroyed.error().what}});
  }
  auto removing = remove_files(session->id(), session->record().persistent);
  co_await std::move(removing);
  if (!keeps) remove_artifacts(session->id());
  if (*others > 0) {
    auto sweeping = sweep_artifacts();
    co_await std::move(sweeping);
  }
  event.id = CO_TRY(std::move(stored));
  events_.announce(std::move(event));
  co_return Result<void>();
}

asio::awaitable<Result<void>> Sessions::stop(std::shared_ptr<Session> session, std::string reason,
                                             Caller actor) {
  if (session->state() != SessionState::ready && session->state() != SessionState::paused)
    co_return Result<void>();
  auto sandbox = session->sandbox(Session::Want::alive);
  session->set_state(SessionState::creating);  // Neither this nor that, until its disk is free.
  session->move_out();
  if (sandbox) {
    auto destroying = (*sandbox)->destroy();
    if (auto destroyed = co_await std::move(destroying); !destroyed)
      log_.error("a sandbox could not be ended",
                 {{"session", session->id()}, {"why", destroyed.error().what}});
  }
  session->set_sandbox(nullptr);
  session->set_state(SessionState::stopped);
  EventRecord event = event_of(*session, "session.stopped", {{"reason", reason}});
  auto change = [id = session->id()](Database& database) {
    return update_session_state(database, id, "stopped", "", std::nullopt);
  };
  auto work = with_trail(std::move(change), event,
                         audit_of(actor, "session.stop", session->id(), {{"reason", reason}}),
                         store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  session->record().state = "stopped";
  events_.announce(std::move(event));
  co_return Result<void>();
}

asio::awaitable<Result<void>> Sessions::give_up(std::shared_ptr<Session> session,
                                                std::string reason, Caller actor) {
  if (session->record().persistent) return stop(session, std::move(reason), std::move(actor));
  return end(session, std::move(reason), std::move(actor));
}

void Sessions::watch_sandbox(const std::shared_ptr<Session>& session,
                             const std::shared_ptr<Sandbox>& sandbox) {
  sandbox->on_end([this, stopped = stopped_, weak = std::weak_ptr(session)] {
    auto of = weak.lock();
    // Ended by us, or another one is in its place already.
    if (*stopped || !of || !of->has_lost_sandbox()) return;
    asio::co_spawn(executor_, give_up(of, "its sandbox ended", the_server()), asio::detached);
  });
}

// What is left of it on the disk. A disk is given free only when its sandbox is gone.
asio::awaitable<void> Sessions::remove_files(std::string id, bool persistent) {
  Result<void> removed;
  saved_->remove_all(folder_of(id) / kCheckpointFolders);
  if (persistent) {
    auto removing = storage_->remove_storage(disk_of(id));
    removed = co_await std::move(removing);
    if (!removed && removed.error().code == Errc::not_found) removed = Result<void>();
  }
  if (removed) removed = remove_tree(AT_FDCWD, folder_of(id).native());
  // The next start sweeps what is left.
  if (!removed)
    log_.error("files of a session could not be removed",
               {{"session", id}, {"why", removed.error().what}});
}

void Sessions::watch_life() { asio::co_spawn(executor_, end_those_over(), asio::detached); }

// Sleeps until the first session may be over; one that ends earlier rings.
asio::awaitable<void> Sessions::end_those_over() {
  auto stopped = stopped_;
  auto swept = Session::Clock::now() - kSweepEvery;
  while (!*stopped) {
    auto now = Session::Clock::now();
    next_look_ = now + kSweepEvery;
    std::vector<std::shared_ptr<Session>> over;
    for (const auto& [id, session] : live_) {
      if (session->deadline() <= now)
        over.push_back(session);
      else
        next_look_ = std::min(next_look_, session->deadline());
    }
    for (auto& session : over) {
      if (session->state() == SessionState::ready &&
          session->request().at_expiry == AtExpiry::pause) {
        asio::co_spawn(executor_, rest_or_end(session), asio::detached);
        continue;
      }
      auto giving_up = give_up(session, "expired", the_server());
      (void)co_await std::move(giving_up);
      if (*stopped) co_return;
    }
    if (now - swept >= kSweepEvery) {
      swept = now;
      auto before = now_ms() - std::chrono::milliseconds(settings_.keep_ended).count();
      auto sweep = [before](Database& database) -> Result<std::int64_t> {
        TRY(trim_events(database, 100'000));
        return remove_sessions_ended_before(database, before);
      };
      (void)co_await store_.write_soon(std::move(sweep));
      if (*stopped) co_return;
      auto sweeping = sweep_artifacts();  // of those that nobody remembers any more
      co_await std::move(sweeping);
      if (*stopped) co_return;
    }
    co_await life_changed_.wait(next_look_);
  }
}

void Sessions::note_activity(const std::shared_ptr<Session>& session) {
  session->touch();
  used_.insert(session->id());
  if (keeping_activity_) return;
  keeping_activity_ = true;
  asio::co_spawn(executor_, keep_activity(), asio::detached);
}

// Some seconds of activity in one write: losing them with the process makes a session end a little
// early at most.
asio::awaitable<void> Sessions::keep_activity() {
  auto stopped = stopped_;
  asio::steady_timer timer(executor_, kKeepActivityAfter);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (*stopped) co_return;
  keeping_activity_ = false;
  std::vector<std::pair<std::string, std::int64_t>> times;
  for (const std::string& id : used_) {
    auto found = live_.find(id);
    if (found == live_.end()) continue;
    times.emplace_back(id, found->second->record().active_ms);
    found->second->rest();
  }
  used_.clear();
  spool_->turn();
  auto work = [times](Database& database) { return touch_sessions(database, times); };
  (void)co_await store_.write_soon(std::move(work));
}

Sessions::Hold::Hold(Sessions* sessions, std::shared_ptr<Session> session)
    : sessions_(sessions), stopped_(sessions->stopped_), session_(std::move(session)) {
  session_->hold();
}

Sessions::Hold::~Hold() {
  session_->let_go();
  if (!*stopped_ && session_->deadline() < sessions_->next_look_) sessions_->life_changed_.ring();
}

asio::awaitable<void> Sessions::end_all(std::string reason) {
  auto all = live_;
  for (auto& [id, session] : all) {
    auto giving_up = give_up(session, reason, the_server());
    (void)co_await std::move(giving_up);
  }
}

asio::awaitable<void> Sessions::leave_all() {
  auto all = live_;
  for (auto& [id, session] : all) {
    if (providers_.at(session->record().provider)->can_keep()) {
      session->leave();
      continue;
    }
    auto giving_up = give_up(session, "the server stopped", the_server());
    (void)co_await std::move(giving_up);
  }
}

}  // namespace asr
