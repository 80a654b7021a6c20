// Brings what a branch has done to its files into the session it came from.
#include <algorithm>
#include <map>

#include "base/clock.hpp"
#include "session/change_list.hpp"
#include "session/session_files.hpp"
#include "session/sessions.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostTold = 1000;

using ByPath = std::map<std::string_view, const FileChange*>;

ByPath by_path(const Changes& changes) {
  ByPath all;
  for (const FileChange& change : changes.entries)
    if (!is_of_trust(change.path)) all.emplace(change.path, &change);
  return all;
}

// One listed twice, while its session lived.
bool is_as_it_was(const ByPath& then, const ByPath& now, const std::string& path) {
  auto before = then.find(path);
  auto after = now.find(path);
  if (before == then.end() || after == now.end()) return before == then.end() && after == now.end();
  return before->second->stamp == after->second->stamp;
}

asio::awaitable<Result<void>> check_unchanged(std::shared_ptr<Sandbox> sandbox,
                                              std::shared_ptr<const Changes> then,
                                              std::vector<std::string> paths) {
  auto looking = sandbox->changes();
  Changes now = CO_TRY(co_await std::move(looking));
  ByPath before = by_path(*then);
  ByPath after = by_path(now);
  for (const std::string& path : paths)
    if (!is_as_it_was(before, after, path))
      co_return fail(Errc::conflict, path + " changed while it was merged",
                     "try again when the programs that write to it have ended");
  co_return Result<void>();
}

bool is_alike(const FileChange& a, const FileChange& b, Moments moments) {
  if (a.kind == FileChange::Kind::removed || b.kind == FileChange::Kind::removed)
    return a.kind == b.kind;
  return is_same(a, b, moments);
}

// What became of a path since the base; nothing if it is as it was.
struct Outcome {
  FileChange::Kind kind = FileChange::Kind::changed;
  const FileChange* now = nullptr;  // none: it is what the environment has
};

std::map<std::string_view, Outcome> since(const ByPath& base, const ByPath& now, Moments moments) {
  std::map<std::string_view, Outcome> outcomes;
  for (const auto& [path, change] : now) {
    auto before = base.find(path);
    if (before == base.end())
      outcomes[path] = {change->kind, change};
    else if (!is_alike(*before->second, *change, moments))
      outcomes[path] = {
          change->kind == FileChange::Kind::removed ? change->kind : FileChange::Kind::changed,
          change};
  }
  for (const auto& [path, change] : base)
    if (!now.contains(path))
      outcomes[path] = {change->kind == FileChange::Kind::added ? FileChange::Kind::removed
                                                                : FileChange::Kind::changed,
                        nullptr};
  return outcomes;
}

json::object told(std::string_view path, const Outcome& outcome) {
  json::object entry{{"path", repair_utf8(std::string(path))}, {"change", to_string(outcome.kind)}};
  if (outcome.now && outcome.kind != FileChange::Kind::removed) entry["size"] = outcome.now->size;
  return entry;
}

// What one has done to a folder and the other to what lies in it is a conflict as well, unless both
// still have the folder.
bool is_in_the_way(const Outcome& above) {
  return !above.now || above.kind == FileChange::Kind::removed ||
         above.now->type != FileType::directory;
}

}  // namespace

asio::awaitable<Result<json::object>> Sessions::merge(Caller caller,
                                                      std::shared_ptr<Session> session,
                                                      std::shared_ptr<Session> branch) {
  if (!branch->request().origin || branch->request().origin->session != session->id())
    co_return fail(Errc::invalid, "/from: it is no branch of this session",
                   "merge into the session that it was forked from");
  auto base_state = branch->origin();
  if (!base_state)
    co_return fail(Errc::conflict, "nobody knows any more what the branch began with",
                   "apply its changes by hand: GET …/diff tells them");
  auto turn = co_await session->branching().take();
  auto turn_there = co_await branch->branching().take();  // Always the parent first.
  auto here = CO_TRY(session->sandbox());
  auto there = CO_TRY(branch->sandbox());
  Aside<Changes> aside(executor_, there->changes());
  auto looking = here->changes();
  auto ours_now = std::make_shared<const Changes>(CO_TRY(co_await std::move(looking)));
  auto looking_there = aside.result();
  auto theirs_now = std::make_shared<const Changes>(CO_TRY(co_await std::move(looking_there)));
  if (!ours_now->complete || !theirs_now->complete || !base_state->changes->complete)
    co_return fail(Errc::exhausted, "there are too many changes to be merged");

  ByPath base = by_path(*base_state->changes);
  ByPath ours_paths = by_path(*ours_now);
  ByPath theirs_paths = by_path(*theirs_now);
  auto ours = since(base, ours_paths, moments_of(*base_state, *here));
  auto theirs = since(base, theirs_paths, moments_of(*base_state, *there));
  json::array files;
  json::array conflicts;
  std::vector<std::string> wanted;
  std::vector<std::string> removed;
  auto conflict = [&](std::string_view path, const Outcome& mine, const Outcome& other) {
    if (conflicts.size() < kMostTold)
      conflicts.push_back({{"path", repair_utf8(std::string(path))},
                           {"ours", to_string(mine.kind)},
                           {"theirs", to_string(other.kind)}});
  };
  for (const auto& [path, outcome] : theirs) {
    auto mine = ours.find(path);
    if (mine != ours.end()) {
      const FileChange* a = mine->second.now;
      const FileChange* b = outcome.now;
      if ((!a && !b) || (a && b && is_alike(*a, *b, Moments::of_two)))
        continue;  // Both did the same.
      conflict(path, mine->second, outcome);
      continue;
    }
    for (std::size_t slash = path.rfind('/'); slash != 0 && slash != std::string_view::npos;
         slash = path.substr(0, slash).rfind('/')) {
      auto above = ours.find(path.substr(0, slash));
      if (above != ours.end() && is_in_the_way(above->second)) {
        conflict(path, above->second, outcome);
        break;
      }
    }
    if (is_in_the_way(outcome))  // What we have changed in a folder that is no more there.
      for (auto below = ours.lower_bound(std::string(path) + "/");
           below != ours.end() && is_within(below->first, path); ++below)
        if (!theirs.contains(below->first)) conflict(below->first, below->second, outcome);
    if (files.size() < kMostTold) files.push_back(told(path, outcome));
    // The branch has made it what the environment has: here nothing shows that any more.
    if (!outcome.now && outcome.kind == FileChange::Kind::changed) conflict(path, outcome, outcome);
    if (outcome.now)
      wanted.emplace_back(path);
    else
      removed.emplace_back(path);
  }
  if (!conflicts.empty())
    co_return json::object{
        {"merged", false}, {"files", json::array()}, {"conflicts", std::move(conflicts)}};
  Taking taking{here, there, ours_now, theirs_now, std::move(wanted), std::move(removed)};
  auto applying = take_files(session, std::move(taking));
  CO_TRY(co_await std::move(applying));
  tell_branch(caller, session, "session.merge", {{"from", branch->id()}});
  co_return json::object{
      {"merged", true}, {"files", std::move(files)}, {"conflicts", json::array()}};
}

// All or nothing. What can be foreseen is, because undoing it takes the session's programs along.
asio::awaitable<Result<void>> Sessions::take_files(std::shared_ptr<Session> session,
                                                   Taking taking) {
  CO_TRY(check_branchable(*session));
  Hold hold(this, session);
  auto holding = hold_still(session);
  Stillness still = CO_TRY(co_await std::move(holding));
  std::filesystem::path folder = settings_.storage / kSavedFolder;
  std::optional<Aside<std::shared_ptr<const SavedFiles>>> fetching;
  if (!taking.wanted.empty())
    fetching.emplace(executor_,
                     save_files(taking.there, folder, taking.there->spec().limits.disk_bytes * 2,
                                taking.wanted));
  Aside<Usage> measuring(executor_, taking.here->usage());
  // Interpreters stand still: their memory can be had when it is needed.
  auto saving = save_files(taking.here, folder, CO_TRY(saved_budget_.room_of(session->owner())));
  auto before = CO_TRY(co_await std::move(saving));
  auto measured = measuring.result();
  Usage usage = CO_TRY(co_await std::move(measured));
  std::shared_ptr<const SavedFiles> files;
  if (fetching) {
    auto fetched = fetching->result();
    files = CO_TRY(co_await std::move(fetched));
    if (usage.disk_limit_bytes != 0 && usage.disk_bytes + files->bytes > usage.disk_limit_bytes)
      co_return fail(Errc::exhausted, "there is no room for the files of the branch",
                     "remove some of the session's files");
  }
  std::vector<std::string> touched = taking.wanted;
  touched.insert(touched.end(), taking.removed.begin(), taking.removed.end());
  Aside<void> aside(executor_, check_unchanged(taking.there, taking.theirs, taking.wanted));
  auto checking = check_unchanged(taking.here, taking.ours, std::move(touched));
  CO_TRY(co_await std::move(checking));
  auto checking_there = aside.result();
  CO_TRY(co_await std::move(checking_there));

  Result<void> done;
  if (files) {
    auto placing = restore_files(taking.here, std::move(files));
    done = co_await std::move(placing);
  }
  for (std::size_t i = 0; i < taking.removed.size() && done; ++i) {
    auto removing = taking.here->remove(taking.removed[i], "root");
    done = co_await std::move(removing);
    if (!done && done.error().code == Errc::not_found) done = Result<void>();
  }
  if (done) co_return done;
  auto undoing = undo_taking(session, std::move(before), taking.ours);
  co_await std::move(undoing);
  co_return fail(done.error().code,
                 "the merge failed half way and was undone: " + done.error().what,
                 "programs that ran in the session have ended with that");
}

// The session as it was, with interpreters that know nothing of it: they stand still.
asio::awaitable<void> Sessions::undo_taking(std::shared_ptr<Session> session,
                                            std::shared_ptr<const SavedFiles> before,
                                            std::shared_ptr<const Changes> changes) {
  auto state = std::make_shared<SavedState>();
  state->at_ms = now_ms();
  if (auto sandbox = session->sandbox()) state->sandbox = (*sandbox)->id().text;
  state->files = std::move(before);
  state->changes = std::move(changes);
  auto saving = save_contexts(session);
  auto contexts = co_await std::move(saving);
  if (contexts) state->contexts = *std::move(contexts);
  auto checkpoint = std::make_shared<const Checkpoint>(
      Checkpoint{session->checkpoints().at(), "", 0, "", false, std::move(state)});
  auto undoing = go_back(Caller{"server", Role::admin, 0, "", 0}, session, checkpoint);
  if (auto undone = co_await std::move(undoing); !undone)
    log_.error("a merge that failed could not be undone",
               {{"session", session->id()}, {"why", undone.error().what}});
}

}  // namespace asr
