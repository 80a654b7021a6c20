// What a session did to its files: the changes with their diffs, and a way out for those that
// somebody wants in a folder of this machine.
#include <fcntl.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <set>

#include "api/api.hpp"
#include "api/errors.hpp"
#include "os/file.hpp"
#include "session/change_apply.hpp"
#include "session/change_list.hpp"
#include "session/folder_paths.hpp"
#include "session/trail.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostFiles = 10'000;  // told at once

// Reading, comparing and copying take time: others do not wait for it.
using Threads = std::shared_ptr<asio::thread_pool>;

struct Changing {
  ApiParts parts;
  ApplyOptions apply;
  Threads threads;
};

template <class T>
asio::awaitable<T> aside(Threads threads, asio::awaitable<T> work) {
  co_return co_await asio::co_spawn(threads->get_executor(), std::move(work), asio::use_awaitable);
}

std::string text_of(const json::object& body, const char* name, std::string standard) {
  const json::value* value = body.if_contains(name);
  return value ? std::string(value->get_string()) : std::move(standard);
}

bool flag_of(const json::object& body, const char* name) {
  const json::value* value = body.if_contains(name);
  return value && value->get_bool();
}

// ---- looking

// What a branch is compared with when it is asked what it did. No checkpoint is called so.
constexpr std::string_view kFork = "@fork";

// A moment to compare with; no state: the beginning.
struct Moment {
  json::value name;
  std::shared_ptr<const SavedState> state;
};

Result<Moment> moment_for(const Session& session, const std::optional<std::string>& since) {
  if (!since || since->empty()) return Moment{nullptr, nullptr};
  if (*since != kFork) {
    // Named first: clang leaks what is built already when a list is left in its middle.
    CheckpointPtr checkpoint = TRY(session.checkpoints().find(*since));
    return Moment{json::string(*since), checkpoint->state};
  }
  if (!session.origin())
    return fail(Errc::not_found, "it is no branch, or nobody knows any more what it began with",
                "leave since out to compare with the beginning");
  return Moment{json::string(*since), session.origin()};
}

// What the files held then. If one of them had been written to before that, the state has to be
// looked into; the others are as they were at the beginning.
asio::awaitable<Result<OpenFile>> files_at(Changing with, std::shared_ptr<Session> session,
                                           Moment moment, const std::vector<FileChange>* wanted) {
  auto sandbox = CO_TRY(session->sandbox());
  if (!moment.state) co_return files_at_start(sandbox);
  std::set<std::string_view> written;
  for (const FileChange& change : moment.state->changes->entries) written.insert(change.path);
  bool needed = std::any_of(wanted->begin(), wanted->end(), [&](const FileChange& change) {
    return change.kind != FileChange::Kind::added && written.contains(change.path);
  });
  if (!needed) co_return files_at_start(sandbox);
  auto looking = with.parts.sessions.look_into(session, moment.state);
  co_return files_now(CO_TRY(co_await std::move(looking)));
}

json::object json_of_all(const std::vector<FileDiff>& diffs, const Moment& since, bool complete,
                         bool truncated) {
  json::array files;
  std::map<std::string_view, std::uint64_t> counts{{"added", 0}, {"changed", 0}, {"removed", 0}};
  for (const FileDiff& diff : diffs) {
    ++counts[to_string(diff.change.kind)];
    truncated = truncated || diff.state == FileDiff::State::too_much;
    files.push_back(json_of(diff));
  }
  json::object body{{"since", since.name}, {"files", std::move(files)}};
  for (const auto& [name, count] : counts) body[name] = count;
  body["complete"] = complete;
  body["truncated"] = truncated;
  return body;
}

asio::awaitable<Result<Reply>> diff(Changing with, CallPtr call) {
  auto finding = with.parts.sessions.find(call->caller, call->parts[0], Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto sandbox = CO_TRY(session->sandbox());
  Moment since = CO_TRY(moment_for(*session, call->head().parameter("since")));
  FileDiffOptions options;
  options.text = CO_TRY(call->flag("text")).value_or(true);
  std::string path = call->head().parameter("path").value_or("/");
  Sessions::Hold hold(&with.parts.sessions, session);
  auto looking = sandbox->changes();
  Changes all = CO_TRY(co_await std::move(looking));
  if (since.state)
    all = changes_between(*since.state->changes, all, moments_of(*since.state, *sandbox));
  std::erase_if(all.entries,
                [&](const FileChange& change) { return !is_within(change.path, path); });
  bool truncated = all.entries.size() > kMostFiles;
  if (truncated) all.entries.resize(kMostFiles);
  OpenFile before;
  if (options.text) {
    auto opening = files_at(with, session, since, &all.entries);
    before = CO_TRY(co_await std::move(opening));
  }
  auto comparing =
      diff_files(std::move(all.entries), std::move(before), files_now(sandbox), std::move(options));
  auto working = aside(with.threads, std::move(comparing));
  std::vector<FileDiff> diffs = co_await std::move(working);
  co_return Reply{200, json_of_all(diffs, since, all.complete, truncated), false, {}};
}

// ---- taking out

// One that the server was told of, or lies in one, and then no link leads there.
Result<UniqueFd> open_target(const ApplyOptions& options, const std::string& folder) {
  if (options.folders.empty())
    return fail(Errc::denied, "this server was not told that it may write to a folder",
                "name those that it may with --apply-folders");
  for (const std::string& allowed : options.folders) {
    if (!is_within(folder, allowed)) continue;
    UniqueFd top(::open(allowed.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!top) return fail_errno(allowed);
    std::string_view below =
        std::string_view(folder).substr(std::min(folder.size(), allowed.size()));
    while (below.starts_with('/')) below.remove_prefix(1);
    while (below.ends_with('/')) below.remove_suffix(1);
    if (below.empty()) return top;
    if (!is_plain_path(below)) break;
    auto opened =
        open_resolved(top.get(), std::string(below), O_PATH | O_DIRECTORY, Resolve::one_mount);
    if (opened || opened.error().code != Errc::invalid) return opened;
    return fail(Errc::denied, folder + " leads through a link");
  }
  return fail(Errc::denied, "this server may not write to " + folder,
              "use a folder that --apply-folders names, or one below it");
}

Result<void> check_role(const Caller& caller, const ApplyOptions& options) {
  if (caller.role >= Role::oper || options.users) return {};
  return fail(Errc::denied, "only operators write to folders of this machine",
              "use a key with the role operator, or let users with --apply-users");
}

// Written down before it is done: what changes this machine has an author.
asio::awaitable<Result<void>> write_down(ApiParts parts, AuditEntry entry) {
  auto work = [entry = std::move(entry), &secrets = parts.store.secrets()](Database& database) {
    return append_audit(database, secrets, entry);
  };
  auto writing = parts.store.write(std::move(work));
  CO_TRY(co_await std::move(writing));
  co_return Result<void>();
}

asio::awaitable<Result<Reply>> apply(Changing with, CallPtr call) {
  auto finding = with.parts.sessions.find(call->caller, call->parts[0], Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  CO_TRY(check_role(call->caller, with.apply));
  auto sandbox = CO_TRY(session->sandbox());
  std::string folder = text_of(call->body, "folder", "");
  UniqueFd target = CO_TRY(open_target(with.apply, folder));
  ApplyRequest request;
  request.from = text_of(call->body, "from", "/workspace");
  request.partial = flag_of(call->body, "partial");
  request.rules.remove = flag_of(call->body, "remove");
  std::vector<std::string> paths;
  if (const json::value* given = call->body.if_contains("paths"))
    for (const json::value& path : given->get_array()) paths.emplace_back(path.get_string());

  Sessions::Hold hold(&with.parts.sessions, session);
  auto looking = sandbox->changes();
  Changes all = CO_TRY(co_await std::move(looking));
  if (!all.complete && !request.partial)
    co_return fail(Errc::conflict, "more has changed than can be told",
                   "take what can be had with \"partial\"");
  auto chosen = CO_TRY(choose_changes(all, request.from, paths));
  auto writing = write_down(with.parts, audit_of(call->caller, "session.apply", session->id(),
                                                 {{"folder", folder}, {"changes", chosen.size()}}));
  CO_TRY(co_await std::move(writing));
  auto applying =
      apply_changes(std::move(chosen), changes_of(sandbox), std::move(target), std::move(request));
  auto working = aside(with.threads, std::move(applying));
  auto applied = co_await std::move(working);
  if (!applied && applied.error().code == Errc::exhausted)
    co_return Reply{507, asr::json_of(applied.error(), call->caller.trace_id), false, {}};
  if (!applied) co_return fail(std::move(applied).error());
  json::object body = asr::json_of(*applied);
  body["folder"] = folder;
  co_return Reply{200, std::move(body), false, {}};
}

}  // namespace

std::vector<Route> change_routes(const ApiParts& parts, const ApplyOptions& options) {
  Changing changing{parts, options, std::make_shared<asio::thread_pool>(2)};
  auto with = [changing](auto function) -> Handle {
    return [changing, function](CallPtr call) { return function(changing, std::move(call)); };
  };
  const std::string tag = "changes";
  Route looking{"GET",
                "/api/sessions/{id}/diff",
                "getDiff",
                tag,
                "What became of the session's files, with diffs of those that are text",
                with(diff),
                {{200, "The changes, by path", "Diff"}}};
  looking.parameters = {{"since",
                         "A checkpoint to compare with, or @fork for what a branch began with; the "
                         "beginning where it "
                         "is missing"},
                        {"path", "Only what is there or lies in it"},
                        {"text", "false: without diffs", "boolean"}};
  std::vector<Route> routes;
  routes.push_back(std::move(looking));
  routes.push_back({"POST",
                    "/api/sessions/{id}/apply",
                    "applyChanges",
                    tag,
                    "Take changes into a folder of the server's machine: all that were chosen, or "
                    "none",
                    with(apply),
                    {{200, "What was done", "Applied"},
                     {507, "There is no room for it, or it is too much at once", "Error"}},
                    "ApplyStart"});
  return routes;
}

}  // namespace asr
