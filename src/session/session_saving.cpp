// Saving a session as it stands: for its own checkpoints, and as an environment for others.
#include <fcntl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fstream>
#include <optional>

#include "base/clock.hpp"
#include "os/file.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr const char* kAtFile = "at";  // beside the checkpoints: where the session is

// Told to people who look at a list.
std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 100;
  std::string line = text.substr(0, std::min(text.find('\n'), kMost));
  return repair_utf8(line.size() < text.size() ? line + "…" : line);
}

// The files of a session, and what they are in comparison to its beginning.
struct FilesThen {
  std::shared_ptr<const Changes> changes;
  std::shared_ptr<const SavedFiles> files;
};

asio::awaitable<Result<FilesThen>> take_files(
    std::shared_ptr<Sandbox> sandbox, std::filesystem::path folder, std::uint64_t most,
    std::function<void(std::shared_ptr<const SavedFiles>)> told) {
  // Before the files: what a program writes in between counts as changed on both sides, and is
  // never overwritten with something older.
  FilesThen then;
  auto looking = sandbox->changes();
  then.changes = std::make_shared<Changes>(CO_TRY(co_await std::move(looking)));
  auto saving = save_files(std::move(sandbox), std::move(folder), most);
  then.files = CO_TRY(co_await std::move(saving));
  if (told) told(then.files);
  co_return then;
}

Error ended_meanwhile() {
  return Error(Errc::gone, "the session ended while it was saved", "create a new one");
}

}  // namespace

Result<void> Sessions::check_branchable(const Session& session) const {
  const std::string& provider = session.record().provider;
  if (auto found = providers_.find(provider); found != providers_.end())
    TRY(found->second->abilities().check(Ability::checkpoints, provider));
  if (session.request().persistent)
    return fail(Errc::unsupported, "sessions with a disk of their own cannot be branched",
                "make the session without persistent, and save it with snapshot");
  return {};
}

// A branch has all that its session had, secrets and credentials included.
Result<void> Sessions::check_may_copy(const Caller& caller, const Session& session) {
  if (caller.id == session.owner() || caller.role >= Role::oper) return {};
  return fail(Errc::denied, "only its owner makes branches and snapshots of a session",
              "ask the owner, or use a key with role operator");
}

asio::awaitable<Result<Sessions::Stillness>> Sessions::hold_still(
    std::shared_ptr<Session> session) {
  auto contexts = session->contexts().all();
  for (const auto& context : contexts) {
    auto reviving = context->revived();
    CO_TRY(co_await std::move(reviving));
  }
  Stillness still;
  for (const auto& context : contexts) still.push_back(CO_TRY(context->hold_still()));
  co_return still;
}

asio::awaitable<Result<std::vector<SavedContext>>> Sessions::save_contexts(
    std::shared_ptr<Session> session) {
  std::vector<SavedContext> all;
  for (const auto& context : session->contexts().all()) {
    auto saving = context->save();
    all.push_back(CO_TRY(co_await std::move(saving)));
  }
  co_return all;
}

asio::awaitable<Result<std::shared_ptr<const SavedState>>> Sessions::save_state(
    std::shared_ptr<Session> session, FilesSaved files_saved) {
  auto sandbox = CO_TRY(session->sandbox());
  CO_TRY(check_branchable(*session));
  std::uint64_t room = CO_TRY(saved_budget_.room_of(session->owner()));
  Hold hold(this, session);
  auto holding = hold_still(session);  // before all is saved, files included
  Stillness still = CO_TRY(co_await std::move(holding));
  auto state = std::make_shared<SavedState>();
  state->at_ms = now_ms();
  state->sandbox = sandbox->id().text;
  // Saving memory writes to no file.
  Aside<FilesThen> aside(executor_, asr::take_files(sandbox, settings_.storage / kSavedFolder, room,
                                                    std::move(files_saved)));
  auto saving = save_contexts(session);
  state->contexts = CO_TRY(co_await std::move(saving));
  auto taking = aside.result();
  FilesThen files = CO_TRY(co_await std::move(taking));
  state->changes = std::move(files.changes);
  state->files = std::move(files.files);
  for (const auto& command : session->commands()) state->programs += command->is_running() ? 1 : 0;
  state->charge = saved_budget_.charge(session->owner(), state->bytes());
  co_return state;
}

std::filesystem::path Sessions::checkpoint_folder(const std::string& id,
                                                  std::uint64_t number) const {
  return folder_of(id) / kCheckpointFolders / std::to_string(number);
}

// Those of an earlier life of the server.
void Sessions::take_up_checkpoints(Session& session) {
  std::error_code ec;
  std::filesystem::path all = folder_of(session.id()) / kCheckpointFolders;
  std::map<std::uint64_t, Checkpoint> found;
  for (const auto& entry : std::filesystem::directory_iterator(all, ec)) {
    if (!entry.is_directory(ec)) continue;
    if (!SavedStore::is_state(entry.path())) {  // It was not finished; nobody was told of it.
      saved_->remove(entry.path());
      continue;
    }
    auto stored = saved_->look_at(entry.path());
    if (!stored) {
      log_.error("a checkpoint cannot be read",
                 {{"session", session.id()}, {"why", stored.error().what}});
      continue;
    }
    const json::object& about = stored->about;
    Checkpoint checkpoint;
    checkpoint.number = about.at("number").to_number<std::uint64_t>();
    checkpoint.name = std::string(about.at("name").as_string());
    checkpoint.parent = about.at("parent").to_number<std::uint64_t>();
    checkpoint.durable = true;
    auto state = std::make_shared<SavedState>(*stored->state);
    state->charge = saved_budget_.charge(session.owner(), state->bytes());
    checkpoint.state = std::move(state);
    found[checkpoint.number] = std::move(checkpoint);
  }
  for (auto& [number, checkpoint] : found) session.checkpoints().take_up(std::move(checkpoint));
  if (auto at = read_number(AT_FDCWD, (all / kAtFile).native()); at && found.contains(*at))
    session.checkpoints().set_at(*at);
}

// For those who look at the tree after a restart: losing it with the machine does no harm.
void Sessions::keep_place(const Session& session) {
  std::filesystem::path folder = folder_of(session.id()) / kCheckpointFolders;
  std::ofstream(folder / kAtFile) << session.checkpoints().durable_at();
}

// With the memory that may have been on the disk alone until now.
asio::awaitable<Result<CheckpointPtr>> Sessions::awake(std::shared_ptr<Session> session,
                                                       CheckpointPtr checkpoint) {
  if (!checkpoint->state->asleep) co_return checkpoint;
  auto reading = saved_->read(checkpoint_folder(session->id(), checkpoint->number));
  auto stored = CO_TRY(co_await std::move(reading));
  auto state = std::make_shared<SavedState>(*stored.state);
  state->charge = checkpoint->state->charge;
  if (auto woken = session->checkpoints().wake(checkpoint->number, std::move(state)))
    co_return woken;
  co_return fail(Errc::not_found, "the checkpoint was removed meanwhile");
}

asio::awaitable<Result<CheckpointPtr>> Sessions::checkpoint(Caller caller,
                                                            std::shared_ptr<Session> session,
                                                            std::string name) {
  CO_TRY(Checkpoints::check_name(name));
  auto turn = co_await session->branching().take();
  CO_TRY(session->checkpoints().check_room(name));
  auto saving = save_state(session);
  auto state = CO_TRY(co_await std::move(saving));
  std::uint64_t number = session->checkpoints().next();
  std::filesystem::path folder = checkpoint_folder(session->id(), number);
  Hold hold(this, session);
  auto writing = saved_->write(
      folder, state, {{"name", name}, {"number", number}, {"parent", session->checkpoints().at()}});
  CO_TRY(co_await std::move(writing));
  if (session->state() == SessionState::gone) {  // What was written came after its end.
    saved_->remove(folder);
    (void)remove_tree(AT_FDCWD, folder_of(session->id()).native());
    co_return fail(ended_meanwhile());
  }
  CheckpointPtr made = session->checkpoints().add(number, name, "", state, true);
  keep_place(*session);
  tell_branch(caller, session, "session.checkpoint", {{"name", name}});
  co_return made;
}

// What was made by itself is not worth a word in the log of events, and does not outlive us.
asio::awaitable<bool> Sessions::save_before(std::shared_ptr<Session> session, std::string what) {
  auto turn = co_await session->branching().take();
  auto saving = save_state(session);
  auto state = co_await std::move(saving);
  Checkpoints& checkpoints = session->checkpoints();
  if (!state) {
    checkpoints.note_gap();
    co_return false;
  }
  checkpoints.add(checkpoints.next(), "", shortened(what), *state, false);
  co_return true;
}

asio::awaitable<Result<void>> Sessions::remove_checkpoint(Caller caller,
                                                          std::shared_ptr<Session> session,
                                                          std::string name) {
  auto turn = co_await session->branching().take();
  CheckpointPtr checkpoint = CO_TRY(session->checkpoints().remove(name));
  saved_->remove(checkpoint_folder(session->id(), checkpoint->number));
  keep_place(*session);
  tell_branch(caller, session, "session.checkpoint_removed", {{"name", name}});
  co_return Result<void>();
}

asio::awaitable<Result<json::object>> Sessions::snapshot(Caller caller,
                                                         std::shared_ptr<Session> session,
                                                         std::string name) {
  CO_TRY(Checkpoints::check_name(name));
  CO_TRY(check_may_copy(caller, *session));
  auto turn = co_await session->branching().take();
  auto saving = save_state(session);
  auto state = CO_TRY(co_await std::move(saving));
  auto keeping =
      snapshots_->save(caller.id, name, session->id(), session->request(), std::move(state));
  json::object told = CO_TRY(co_await std::move(keeping));
  tell_branch(caller, session, "session.snapshot", {{"name", name}});
  co_return told;
}

asio::awaitable<Result<void>> Sessions::remove_snapshot(Caller caller, std::string name) {
  if (caller.role == Role::viewer)
    co_return fail(Errc::denied, "this key may only look", "ask an admin for a key with role user");
  CO_TRY(snapshots_->remove(caller.id, name));
  auto work = [entry = audit_of(caller, "snapshot.delete", name), &secrets = store_.secrets()](
                  Database& database) { return append_audit(database, secrets, entry); };
  CO_TRY(co_await store_.write(std::move(work)));
  co_return Result<void>();
}

// Nobody waits for it to be written down.
void Sessions::tell_branch(const Caller& caller, const std::shared_ptr<Session>& session,
                           const std::string& type, const json::object& detail) {
  auto telling = [](Sessions* self, EventRecord event, AuditEntry entry) -> asio::awaitable<void> {
    auto nothing = [](Database&) -> Result<void> { return {}; };
    auto work = with_trail(std::move(nothing), event, std::move(entry), self->store_.secrets());
    auto id = co_await self->store_.write_soon(std::move(work));
    if (!id) co_return;
    event.id = *id;
    self->events_.announce(std::move(event));
  };
  asio::co_spawn(executor_,
                 telling(this, event_of(*session, type, detail),
                         audit_of(caller, type, session->id(), detail)),
                 asio::detached);
}

}  // namespace asr
