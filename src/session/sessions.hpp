// All sessions of this server: made, found, listed, changed and ended, each change stored before it
// is told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/log.hpp"
#include "provider/provider.hpp"
#include "session/aside.hpp"
#include "session/caller.hpp"
#include "session/event_bus.hpp"
#include "session/saved_store.hpp"
#include "session/secrets.hpp"
#include "session/session.hpp"
#include "session/session_id.hpp"
#include "session/slots.hpp"
#include "session/snapshots.hpp"
#include "session/volumes.hpp"
#include "store/store.hpp"
#include "store/usage_records.hpp"

namespace asr {

struct SessionSettings {
  std::chrono::seconds ttl{3600};                    // where a request does not say; zero: for ever
  std::chrono::seconds idle{0};                      // likewise
  std::chrono::seconds most_ttl{0};                  // zero: none
  std::chrono::seconds keep_paused{30 * 24 * 3600};  // then a paused one ends; zero: never
  std::uint32_t most_sessions_per_key = 1000;
  std::uint32_t most_sessions = 10000;
  std::chrono::hours keep_ended{24};       // records of sessions that are gone
  std::string url_base;                    // what a session's url begins with
  std::filesystem::path storage;           // sessions/<id> below it: what a session leaves on disk
  std::chrono::seconds usage_every{60};    // written down so often; zero: never
  std::uint64_t history_bytes = 16 << 20;  // of what is done in one; zero: nothing is kept
  std::uint64_t most_saved_per_key = 8ULL << 30;
  std::uint64_t most_saved = 32ULL << 30;
  VolumeSettings volumes;
  WarmSettings interpreters;
  EgressDialer* dialer = nullptr;  // none: sessions have no way out; outlives them all
};

// What the server counts about sessions.
struct SessionCounts {
  std::uint64_t created = 0;
  std::uint64_t ended = 0;
  std::uint64_t failed = 0;
  std::uint64_t commands = 0;
  std::map<std::string, std::uint64_t> cells;         // by status
  std::map<std::string, std::uint64_t> command_ends;  // by status
  std::size_t ready = 0;
  std::size_t paused = 0;
  std::size_t stopped = 0;
  std::size_t creating = 0;
};

// On one thread. Outlived by the store, the providers and the log it was given.
class Sessions {
 public:
  Sessions(asio::any_io_executor executor, Store& store, const Log& log, NodeName node,
           SessionSettings settings);
  ~Sessions();

  void add_provider(std::unique_ptr<Provider> provider);
  const std::map<std::string, std::unique_ptr<Provider>>& providers() const { return providers_; }

  // Sessions of an earlier life of this server: what lives is taken up, persistent ones are
  // stopped, others are gone, and said so. Once, before anything else.
  asio::awaitable<Result<void>> recover();

  // What another session had, to go on from, and a sandbox with those files if there is one
  // already.
  struct Beginning {
    std::shared_ptr<const SavedState> from;
    std::shared_ptr<Sandbox> sandbox;
  };
  asio::awaitable<Result<std::shared_ptr<Session>>> create(Caller caller, SessionRequest request,
                                                           Beginning beginning = {});
  // There is no room for another one, whoever asks.
  bool is_full() const noexcept { return live_.size() + creating_ >= settings_.most_sessions; }

  // A live one that the caller may use so. Foreign, unknown and malformed ids are alike.
  asio::awaitable<Result<std::shared_ptr<Session>>> find(Caller caller, std::string id,
                                                         Access access);
  // Whether the caller may do so at this moment; looking does not count as use.
  asio::awaitable<Result<void>> check_access(Caller caller, std::shared_ptr<Session> session,
                                             Access access);
  // Whoever knows a session's name may see what it shows.
  Result<std::shared_ptr<Session>> find_for_preview(const std::string& id);
  // For traffic to what a session shows, of whoever knows its name: one that is paused and is to
  // wake goes on first. Errc::not_found: there is none; Errc::conflict: it stands still.
  asio::awaitable<Result<std::shared_ptr<Session>>> find_awake(std::string id);
  void each_live(const std::function<void(const Session&)>& use) const;
  // As find(), gone ones included.
  asio::awaitable<Result<SessionRecord>> find_record(Caller caller, std::string id);
  asio::awaitable<Result<SessionPage>> list(Caller caller, SessionFilter filter);
  asio::awaitable<Result<std::int64_t>> count(Caller caller, SessionFilter filter);

  struct Patch {
    std::optional<std::map<std::string, std::string>> labels;
    std::optional<std::chrono::seconds> ttl;  // from now; zero: for ever
    std::optional<std::chrono::seconds> idle;
    std::optional<bool> keep_artifacts;
  };
  asio::awaitable<Result<void>> patch(Caller caller, std::shared_ptr<Session> session, Patch patch);
  // All of it stands still, its time included; it ends when nobody resumes it for long.
  asio::awaitable<Result<void>> pause(Caller caller, std::shared_ptr<Session> session);
  // With what was left of its time.
  asio::awaitable<Result<void>> resume(Caller caller, std::shared_ptr<Session> session);
  // `keep_artifacts`: instead of what was said before.
  asio::awaitable<Result<void>> remove(Caller caller, std::shared_ptr<Session> session,
                                       std::optional<bool> keep_artifacts = {});
  // Only within the kind of network that the session was made with.
  asio::awaitable<Result<void>> set_network(Caller caller, std::shared_ptr<Session> session,
                                            NetworkRequest network);
  // The oldest first; sessions that are gone included.
  asio::awaitable<Result<std::vector<UsageRecord>>> usage_history(Caller caller, std::string id,
                                                                  std::int64_t from_ms,
                                                                  std::int64_t limit);
  asio::awaitable<Result<void>> share(Caller caller, std::shared_ptr<Session> session,
                                      std::string key_id, std::optional<std::string> access);

  asio::awaitable<Result<std::shared_ptr<SessionCommand>>> start_command(
      Caller caller, std::shared_ptr<Session> session, CommandRequest request);

  // Runs a piece of code in an interpreter of the session, and keeps what it made
  // (session_cells.cpp).
  asio::awaitable<Result<json::object>> execute(Caller caller, std::shared_ptr<Session> session,
                                                CellRequest request, Context::Listen listen = {});

  // What its cells made; of a session that is gone, too, if that was kept (session_artifacts.cpp).
  asio::awaitable<Result<std::shared_ptr<Artifacts>>> find_artifacts(Caller caller, std::string id,
                                                                     Access access);

  // What was done in it; of a session that is gone, too, if its artifacts were kept
  // (session_history.cpp).
  struct FoundHistory {
    std::filesystem::path folder;
    std::shared_ptr<Session> session;  // none: it is gone
  };
  asio::awaitable<Result<FoundHistory>> find_history(Caller caller, std::string id);

  // Saves (session_saving.cpp), goes back and branches (session_branch.cpp), one at a time in a
  // session. What does not come along is told in the state.
  asio::awaitable<Result<CheckpointPtr>> checkpoint(Caller caller, std::shared_ptr<Session> session,
                                                    std::string name);
  asio::awaitable<Result<CheckpointPtr>> rollback(Caller caller, std::shared_ptr<Session> session,
                                                  std::string name);
  // To before what was run last, in a session that saves itself.
  asio::awaitable<Result<CheckpointPtr>> undo(Caller caller, std::shared_ptr<Session> session);
  asio::awaitable<Result<void>> remove_checkpoint(Caller caller, std::shared_ptr<Session> session,
                                                  std::string name);
  struct ForkRequest {
    std::uint32_t count = 1;
    std::string checkpoint;  // empty: from where the session is
    std::optional<std::map<std::string, std::string>> labels;
    std::optional<std::chrono::seconds> ttl;
  };
  struct Branches {
    std::vector<std::shared_ptr<Session>> sessions;
    std::shared_ptr<const SavedState> state;
  };
  asio::awaitable<Result<Branches>> fork(Caller caller, std::shared_ptr<Session> session,
                                         ForkRequest wanted);
  // Changes of the branch's files since it began, in this session, too. What both have changed is a
  // conflict: then nothing is done (session_merge.cpp).
  asio::awaitable<Result<json::object>> merge(Caller caller, std::shared_ptr<Session> session,
                                              std::shared_ptr<Session> branch);
  asio::awaitable<Result<json::object>> tree(Caller caller, std::shared_ptr<Session> session);
  asio::awaitable<Result<json::object>> snapshot(Caller caller, std::shared_ptr<Session> session,
                                                 std::string name);
  asio::awaitable<Result<void>> remove_snapshot(Caller caller, std::string name);
  const Snapshots& snapshots() const noexcept { return *snapshots_; }
  // The files of a state in a sandbox of their own, for somebody who wants to compare.
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> look_into(
      std::shared_ptr<Session> session, std::shared_ptr<const SavedState> state);
  // Before something is run in a session that wants it so; whether that can be undone.
  asio::awaitable<bool> save_before(std::shared_ptr<Session> session, std::string what);

  // Ends every session; persistent ones are stopped.
  asio::awaitable<void> end_all(std::string reason);
  // Lets go of those that outlive this server, before the engine does; ends the others.
  asio::awaitable<void> leave_all();

  SecretKeeper& secrets() noexcept { return secrets_; }
  // A secret of theirs has changed: what goes out has the new one from now on.
  asio::awaitable<void> renew_secrets(std::string owner);
  Volumes& volumes() noexcept { return *volumes_; }
  const std::shared_ptr<WarmInterpreters>& interpreters() const noexcept { return interpreters_; }
  EventBus& events() noexcept { return events_; }
  SessionCounts counts() const;
  const SessionSettings& settings() const noexcept { return settings_; }
  void set_url_base(std::string url) { settings_.url_base = std::move(url); }

  // While one of these lives, the session is in use.
  class Hold {
   public:
    Hold(Sessions* sessions, std::shared_ptr<Session> session);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Sessions* sessions_;
    std::shared_ptr<bool> stopped_;
    std::shared_ptr<Session> session_;
  };

 private:
  struct Change;  // a state to store, an event to announce

  asio::awaitable<Result<std::shared_ptr<Session>>> make(Caller caller, SessionRequest request,
                                                         Beginning beginning);
  asio::awaitable<Result<std::shared_ptr<Session>>> make_with(Caller caller, SessionRequest request,
                                                              std::string id,
                                                              Volumes::Placed volumes,
                                                              Beginning beginning);
  // Several at once, with one state to go on from.
  struct Forking {
    explicit Forking(asio::any_io_executor executor) : done(std::move(executor)) {}
    std::shared_ptr<const SavedState> from;
    std::optional<Aside<std::shared_ptr<Sandbox>>> first;  // already being made
    std::uint32_t left = 0;
    std::uint32_t working = 0;
    std::vector<std::shared_ptr<Session>> made;
    std::optional<Error> error;
    Bell done;
  };
  // Where the provider does it.
  asio::awaitable<Result<Branches>> fork_there(Caller caller, std::shared_ptr<Session> session,
                                               ForkRequest wanted);
  asio::awaitable<void> make_branches(Caller caller, SessionRequest request,
                                      std::shared_ptr<Forking> job);
  // `files_saved` hears of the files before the memory is saved.
  using FilesSaved = std::function<void(std::shared_ptr<const SavedFiles>)>;
  asio::awaitable<Result<std::shared_ptr<const SavedState>>> save_state(
      std::shared_ptr<Session> session, FilesSaved files_saved = {});
  // Until the last of these is dropped, no cell begins.
  using Stillness = std::vector<std::shared_ptr<void>>;
  asio::awaitable<Result<Stillness>> hold_still(std::shared_ptr<Session> session);
  asio::awaitable<Result<std::vector<SavedContext>>> save_contexts(
      std::shared_ptr<Session> session);
  asio::awaitable<Result<void>> go_back(Caller caller, std::shared_ptr<Session> session,
                                        CheckpointPtr checkpoint);
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> bring_back(
      SessionRequest request, std::shared_ptr<const SavedFiles> files);
  void tell_branch(const Caller& caller, const std::shared_ptr<Session>& session,
                   const std::string& type, const json::object& detail);
  Result<void> check_branchable(const Session& session) const;
  static Result<void> check_may_copy(const Caller& caller, const Session& session);
  asio::awaitable<Result<CheckpointPtr>> awake(std::shared_ptr<Session> session,
                                               CheckpointPtr checkpoint);
  void keep_place(const Session& session);
  // What of a branch's files is brought over, and what both sides had when that was decided.
  struct Taking {
    std::shared_ptr<Sandbox> here, there;
    std::shared_ptr<const Changes> ours, theirs;
    std::vector<std::string> wanted, removed;
  };
  asio::awaitable<Result<void>> take_files(std::shared_ptr<Session> session, Taking taking);
  asio::awaitable<void> undo_taking(std::shared_ptr<Session> session,
                                    std::shared_ptr<const SavedFiles> before,
                                    std::shared_ptr<const Changes> changes);
  std::filesystem::path checkpoint_folder(const std::string& id, std::uint64_t number) const;
  void take_up_checkpoints(Session& session);
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> bring_up(std::string id, SessionRequest request,
                                                             std::vector<Volume> volumes);
  // Its sandbox is given to the keeper while something else goes on.
  Aside<void> begin_keeping(const std::string& provider, std::shared_ptr<Sandbox> sandbox,
                            std::string id);
  void note_kept(const Session& session, const Result<void>& kept) const;
  SessionRecord record_of(const Caller& caller, const SessionRequest& request, std::string id,
                          const Sandbox& sandbox) const;
  asio::awaitable<Result<void>> open_network(std::shared_ptr<Session> session,
                                             std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<Result<void>> write_trust(std::shared_ptr<Session> session,
                                            std::shared_ptr<Sandbox> sandbox);
  EgressProxy::Report report_of(const std::shared_ptr<Session>& session);
  // How long a session that asks for this lives; zero: for ever.
  std::chrono::seconds life_of(std::optional<std::chrono::seconds> wanted) const;
  std::int64_t expiry_of(std::optional<std::chrono::seconds> wanted) const;
  void take_in(const std::shared_ptr<Session>& session);
  void watch_sandbox(const std::shared_ptr<Session>& session,
                     const std::shared_ptr<Sandbox>& sandbox);
  Session::CommandEnd command_end(const std::shared_ptr<Session>& session);
  // Settles who holds it, where that is left to us.
  Result<void> choose_provider(SessionRequest& request) const;
  Result<void> admit(const Caller& caller, const SessionRequest& request) const;
  asio::awaitable<json::array> keep_artifacts(std::shared_ptr<Session> session,
                                              std::shared_ptr<Sandbox> sandbox,
                                              std::shared_ptr<const CellAnswer> answer);
  asio::awaitable<Result<void>> end(std::shared_ptr<Session> session, std::string reason,
                                    Caller actor, std::optional<bool> keep_artifacts = {});
  // Its computer goes; its files stay.
  asio::awaitable<Result<void>> stop(std::shared_ptr<Session> session, std::string reason,
                                     Caller actor);
  // Either, as it is made.
  asio::awaitable<Result<void>> give_up(std::shared_ptr<Session> session, std::string reason,
                                        Caller actor);
  asio::awaitable<Result<void>> start_again(Caller caller, std::shared_ptr<Session> session);
  asio::awaitable<void> remove_files(std::string id, bool persistent);
  void remove_artifacts(const std::string& id);
  // `files`: that it came with.
  // `spool`: for one that is new.
  void begin_history(const std::shared_ptr<Session>& session, json::array files,
                     std::shared_ptr<Spool> spool);
  bool keeps_history(const SessionRequest& request) const noexcept;
  // Lays it to the artifacts, and tells how many bytes it has.
  std::int64_t keep_history(Session& session);
  std::int64_t keep_history(const std::string& id);
  asio::awaitable<void> sweep_artifacts();

  // Taking up what an earlier life left (session_recovery.cpp).
  using Inherited = std::multimap<std::string, std::shared_ptr<Sandbox>>;  // by session
  asio::awaitable<Inherited> inherit(std::vector<SessionRecord> records);
  Result<std::shared_ptr<Session>> revive(SessionRecord record, std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<Result<void>> settle_lost(std::vector<SessionRecord> lost);
  asio::awaitable<void> sweep_files();
  std::filesystem::path folder_of(const std::string& id) const;
  std::shared_ptr<CommandJournal> journal_of(const std::string& id, std::shared_ptr<Spool> spool);
  void recover_spool(const std::vector<SessionRecord>& records);
  Artifacts artifacts_of(const std::string& id) const;
  struct Rest {
    std::int64_t expires_ms;  // 0: never
    std::int64_t left_ms;
  };
  Rest rest_of(const Session& session, SessionState state) const;
  // It stands still, or goes on: stored with its times, then told.
  asio::awaitable<Result<void>> change_rest(std::shared_ptr<Session> session, SessionState state,
                                            Caller actor);
  asio::awaitable<Result<void>> pause_in_turn(Caller caller, std::shared_ptr<Session> session);
  asio::awaitable<Result<void>> resume_in_turn(Caller caller, std::shared_ptr<Session> session);
  // When its time is over.
  asio::awaitable<void> rest_or_end(std::shared_ptr<Session> session);
  EventRecord event_of(const Session& session, std::string type, json::object data) const;
  asio::awaitable<void> tell(EventRecord event);
  void watch_life();
  void watch_usage();
  asio::awaitable<void> sample_usage();
  asio::awaitable<void> end_those_over();
  asio::awaitable<void> keep_activity();
  void note_activity(const std::shared_ptr<Session>& session);
  void command_ended(const std::weak_ptr<Session>& session,
                     const std::shared_ptr<SessionCommand>& command);

  asio::any_io_executor executor_;
  Store& store_;
  const Log& log_;
  NodeName node_;
  SessionSettings settings_;
  std::map<std::string, std::unique_ptr<Provider>> providers_;
  Provider* storage_ = nullptr;  // whose disks and volumes lie in this server's storage: the first
  std::unique_ptr<Volumes> volumes_;
  SecretKeeper secrets_;
  SavedBudget saved_budget_;
  std::shared_ptr<Spool> spool_;
  std::unique_ptr<SavedStore> saved_;
  std::unique_ptr<Snapshots> snapshots_;
  Slots looking_;  // into states
  std::shared_ptr<WarmInterpreters> interpreters_;
  std::unordered_map<std::string, std::shared_ptr<Session>> live_;
  std::unordered_map<std::string, std::uint32_t>
      alive_of_;  // sessions by owner, those made included
  EventBus events_;
  Bell life_changed_;
  Session::Clock::time_point next_look_ = Session::Clock::time_point::max();
  std::set<std::string> used_;  // sessions whose activity is not stored yet
  bool keeping_activity_ = false;
  std::shared_ptr<bool> stopped_ = std::make_shared<bool>(false);
  std::size_t creating_ = 0;
  SessionCounts totals_;
};

}  // namespace asr
