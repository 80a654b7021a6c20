// Going back to what was saved, and others that go on from there.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/clock.hpp"
#include "base/scope_exit.hpp"
#include "session/sessions.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr std::uint32_t kAtOnce = 8;  // children that are made at the same time

asio::awaitable<void> end_quietly(std::shared_ptr<Sandbox> sandbox) {
  auto destroying = sandbox->destroy();
  (void)co_await std::move(destroying);
}

}  // namespace

// A sandbox like that of a session without volumes, with its files; not yet kept under any name.
asio::awaitable<Result<std::shared_ptr<Sandbox>>> Sessions::bring_back(
    SessionRequest request, std::shared_ptr<const SavedFiles> files) {
  auto bringing = bring_up("", std::move(request), {});
  auto sandbox = CO_TRY(co_await std::move(bringing));
  auto restoring = restore_files(sandbox, std::move(files));
  CO_TRY(co_await std::move(restoring));
  co_return sandbox;
}

// Volumes are none of a state's files, and nothing runs there. A few at a time: nobody pays for it.
asio::awaitable<Result<std::shared_ptr<Sandbox>>> Sessions::look_into(
    std::shared_ptr<Session> session, std::shared_ptr<const SavedState> state) {
  auto slot = co_await looking_.take();
  auto bringing = bring_up(session->id(), session->request(), {});
  auto sandbox = CO_TRY(co_await std::move(bringing));
  auto restoring = restore_files(sandbox, state->files);
  CO_TRY(co_await std::move(restoring));
  auto look = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<Sandbox>>>(
      std::move(slot), std::move(sandbox));
  co_return std::shared_ptr<Sandbox>(look, look->second.get());
}

asio::awaitable<Result<void>> Sessions::go_back(Caller caller, std::shared_ptr<Session> session,
                                                CheckpointPtr checkpoint) {
  auto old = CO_TRY(session->sandbox());
  CO_TRY(check_branchable(*session));
  session->set_state(SessionState::creating);  // One at a time.
  ScopeExit back([&] { session->set_state(SessionState::ready); });
  auto state = checkpoint->state;
  auto placing = volumes_->place(session->owner(), session->request().volumes);
  Volumes::Placed placed = CO_TRY(co_await std::move(placing));
  auto bringing = bring_up(session->id(), session->request(), std::move(placed.mounts));
  auto sandbox = CO_TRY(co_await std::move(bringing));
  auto keeping = begin_keeping(session->request().provider, sandbox, session->id());
  auto restoring = restore_files(sandbox, state->files);
  CO_TRY(co_await std::move(restoring));
  auto waiting = keeping.result();
  note_kept(*session, co_await std::move(waiting));
  auto reviving = session->contexts().revive(sandbox, state->contexts);
  auto contexts = CO_TRY(co_await std::move(reviving));

  std::string isolation = to_text(json_of(sandbox->isolation()));
  json::object detail{{"checkpoint", checkpoint->number}};
  if (!checkpoint->name.empty()) detail["name"] = checkpoint->name;
  EventRecord event = event_of(*session, "session.rollback", detail);
  auto change = [id = session->id(), isolation, sandbox_id = sandbox->id().text,
                 url = session->record().url](Database& database) {
    return update_session_sandbox(database, id, sandbox_id, isolation, url);
  };
  auto work =
      with_trail(std::move(change), event,
                 audit_of(caller, "session.rollback", session->id(), detail), store_.secrets());
  event.id = CO_TRY(co_await store_.write(std::move(work)));
  // From here on the old one is history.
  back.dismiss();
  session->record().sandbox = sandbox->id().text;
  session->record().isolation = std::move(isolation);
  session->set_sandbox(sandbox);
  session->contexts().replace(std::move(contexts));
  session->set_state(SessionState::ready);
  session->touch();
  watch_sandbox(session, sandbox);
  asio::co_spawn(executor_, end_quietly(std::move(old)), asio::detached);
  life_changed_.ring();
  auto opening = open_network(session, sandbox);
  if (auto opened = co_await std::move(opening); !opened)
    log_.error("a session has lost its network",
               {{"session", session->id()}, {"why", opened.error().what}});
  events_.announce(std::move(event));
  co_return Result<void>();
}

asio::awaitable<Result<CheckpointPtr>> Sessions::rollback(Caller caller,
                                                          std::shared_ptr<Session> session,
                                                          std::string name) {
  auto turn = co_await session->branching().take();
  auto waking = awake(session, CO_TRY(session->checkpoints().find(name)));
  CheckpointPtr checkpoint = CO_TRY(co_await std::move(waking));
  auto going = go_back(std::move(caller), session, checkpoint);
  CO_TRY(co_await std::move(going));
  session->checkpoints().set_at(checkpoint->number);
  keep_place(*session);
  co_return checkpoint;
}

asio::awaitable<Result<CheckpointPtr>> Sessions::undo(Caller caller,
                                                      std::shared_ptr<Session> session) {
  auto turn = co_await session->branching().take();
  CheckpointPtr checkpoint = CO_TRY(session->checkpoints().last_automatic());
  auto going = go_back(std::move(caller), session, checkpoint);
  CO_TRY(co_await std::move(going));
  session->checkpoints().drop(checkpoint->number);  // The next one undoes what was before it.
  keep_place(*session);
  co_return checkpoint;
}

asio::awaitable<Result<Sessions::Branches>> Sessions::fork(Caller caller,
                                                           std::shared_ptr<Session> session,
                                                           ForkRequest wanted) {
  CO_TRY(check_may_copy(caller, *session));
  const Abilities& abilities = providers_.at(session->record().provider)->abilities();
  if (!abilities.can(Ability::checkpoints) && abilities.can(Ability::fork)) {
    auto forking = fork_there(std::move(caller), std::move(session), std::move(wanted));
    co_return co_await std::move(forking);
  }
  auto turn = co_await session->branching().take();
  std::shared_ptr<const SavedState> state;
  std::uint64_t from = session->checkpoints().at();
  auto job = std::make_shared<Forking>(executor_);
  if (wanted.checkpoint.empty()) {
    // Files are saved before memory is: the first of the children may have them by then.
    FilesSaved begin_first = [this, job, session](std::shared_ptr<const SavedFiles> files) {
      if (!session->request().volumes.empty()) return;
      job->first.emplace(executor_, bring_back(session->request(), std::move(files)));
    };
    auto saving = save_state(session, std::move(begin_first));
    state = CO_TRY(co_await std::move(saving));
  } else {
    auto waking = awake(session, CO_TRY(session->checkpoints().find(wanted.checkpoint)));
    CheckpointPtr checkpoint = CO_TRY(co_await std::move(waking));
    state = checkpoint->state;
    from = checkpoint->number;
  }
  turn.reset();
  SessionRequest request = session->request();
  request.origin = {session->id(), from};
  request.files.clear();
  if (wanted.labels) request.labels = *wanted.labels;
  if (wanted.ttl) request.ttl = wanted.ttl;

  job->from = state;
  job->left = wanted.count;
  for (std::uint32_t i = 0; i < std::min(wanted.count, kAtOnce); ++i)
    asio::co_spawn(executor_, make_branches(caller, request, job), asio::detached);
  while (job->working > 0) co_await job->done.wait();
  if (job->error) {  // All or nothing.
    for (auto& made : job->made) {
      auto removing = remove(caller, made);
      (void)co_await std::move(removing);
    }
    co_return fail(*job->error);
  }
  json::object detail{{"count", job->made.size()}};
  json::array ids;
  for (const auto& made : job->made) ids.emplace_back(made->id());
  // An id opens previews: an operator's branches are not the owner's to know.
  if (caller.id == session->owner()) detail["sessions"] = std::move(ids);
  tell_branch(caller, session, "session.fork", detail);
  co_return Branches{std::move(job->made), std::move(state)};
}

// All at once, with what the provider lets come along: files, and perhaps more.
asio::awaitable<Result<Sessions::Branches>> Sessions::fork_there(Caller caller,
                                                                 std::shared_ptr<Session> session,
                                                                 ForkRequest wanted) {
  auto turn = co_await session->branching().take();
  if (!wanted.checkpoint.empty()) CO_TRY(check_branchable(*session));
  auto sandbox = CO_TRY(session->sandbox());
  SessionRequest request = session->request();
  request.origin = {session->id(), 0};
  request.files.clear();
  if (wanted.labels) request.labels = *wanted.labels;
  if (wanted.ttl) request.ttl = wanted.ttl;
  CO_TRY(admit(caller, request));
  auto state = std::make_shared<SavedState>();
  state->at_ms = now_ms();
  for (const auto& context : session->contexts().all()) {
    SavedContext lost;
    lost.id = context->id();
    lost.language = context->language().name;
    lost.had_one = true;
    lost.why_not = "interpreters do not come along at this provider";
    state->contexts.push_back(std::move(lost));
  }
  auto forking = providers_.at(session->record().provider)
                     ->fork(sandbox, std::vector<std::string>(wanted.count));
  auto ready = CO_TRY(co_await std::move(forking));
  turn.reset();
  Branches branches{{}, state};
  for (auto& each : ready) {
    auto creating = create(caller, request, Beginning{nullptr, std::move(each)});
    auto made = co_await std::move(creating);
    if (made) {
      branches.sessions.push_back(std::move(*made));
      continue;
    }
    for (auto& one : branches.sessions) {  // All or nothing.
      auto removing = remove(caller, one);
      (void)co_await std::move(removing);
    }
    co_return fail(made.error());
  }
  json::object detail{{"count", branches.sessions.size()}};
  tell_branch(caller, session, "session.fork", detail);
  co_return branches;
}

asio::awaitable<void> Sessions::make_branches(Caller caller, SessionRequest request,
                                              std::shared_ptr<Forking> job) {
  ++job->working;
  while (job->left > 0 && !job->error) {
    --job->left;
    Beginning beginning{job->from, nullptr};
    if (job->first) {
      auto bringing = std::exchange(job->first, std::nullopt)->result();
      beginning.sandbox = (co_await std::move(bringing)).value_or(nullptr);
    }
    auto creating = create(caller, request, std::move(beginning));
    auto made = co_await std::move(creating);
    if (made)
      job->made.push_back(std::move(*made));
    else if (!job->error)
      job->error = made.error();
  }
  --job->working;
  job->done.ring();
}

}  // namespace asr
