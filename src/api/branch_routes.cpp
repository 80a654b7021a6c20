// Saving a session, going back to what was saved, and branches that go on from there.
#include <cmath>

#include "api/api.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

using Finding = asio::awaitable<Result<std::shared_ptr<Session>>>;

Finding find(ApiParts parts, CallPtr call, Access access) {
  return parts.sessions.find(call->caller, call->parts[0], access);
}

std::string text_of(const json::value& value) { return std::string(value.get_string()); }

asio::awaitable<Result<Reply>> checkpoint(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto saving = parts.sessions.checkpoint(call->caller, session, text_of(call->body.at("name")));
  CheckpointPtr made = CO_TRY(co_await std::move(saving));
  if (session->history()) session->note(state_step("checkpoint", made->name));
  co_return Reply{201, json_of(*made), false, {}};
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  json::array all;
  for (const CheckpointPtr& one : session->checkpoints().all()) all.push_back(json_of(*one));
  std::uint64_t at = session->checkpoints().at();
  co_return Reply{200,
                  json::object{{"checkpoints", std::move(all)},
                               {"at", at == 0 ? json::value(nullptr) : json::value(at)}},
                  false,
                  {}};
}

asio::awaitable<Result<Reply>> remove(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto removing = parts.sessions.remove_checkpoint(call->caller, session, call->parts[1]);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> rollback(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto going = parts.sessions.rollback(call->caller, session, text_of(call->body.at("name")));
  CheckpointPtr reached = CO_TRY(co_await std::move(going));
  if (session->history()) session->note(state_step("rollback", reached->name));
  co_return Reply{200, json_of(*reached), false, {}};
}

asio::awaitable<Result<Reply>> undo(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto going = parts.sessions.undo(call->caller, session);
  CheckpointPtr reached = CO_TRY(co_await std::move(going));
  if (session->history()) session->note(state_step("undo", ""));
  co_return Reply{200, json_of(*reached), false, {}};
}

Sessions::ForkRequest fork_request_from(const json::object& body) {
  Sessions::ForkRequest wanted;
  if (const json::value* count = body.if_contains("count"))
    wanted.count = count->to_number<std::uint32_t>();
  if (const json::value* name = body.if_contains("checkpoint")) wanted.checkpoint = text_of(*name);
  if (const json::value* time = body.if_contains("ttl_s"))
    wanted.ttl = std::chrono::seconds(std::llround(std::ceil(time->to_number<double>())));
  if (const json::value* labels = body.if_contains("labels")) {
    wanted.labels.emplace();
    for (const auto& [name, value] : labels->get_object())
      (*wanted.labels)[std::string(name)] = text_of(value);
  }
  return wanted;
}

asio::awaitable<Result<Reply>> fork(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto forking = parts.sessions.fork(call->caller, session, fork_request_from(call->body));
  Sessions::Branches branches = CO_TRY(co_await std::move(forking));
  json::array sessions;
  for (const auto& branch : branches.sessions) sessions.push_back(branch->describe());
  json::object from = json_of(*branches.state);
  from["survives_server"] = false;  // Afterwards nobody can merge: what they began with is gone.
  json::object body{{"sessions", std::move(sessions)}, {"from", std::move(from)}};
  co_return Reply{201, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> merge(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto looking = parts.sessions.find(call->caller, text_of(call->body.at("from")), Access::look);
  auto branch = CO_TRY(co_await std::move(looking));
  auto merging = parts.sessions.merge(call->caller, session, branch);
  json::object report = CO_TRY(co_await std::move(merging));
  bool merged = report.at("merged").get_bool();
  if (merged && session->history()) session->note(state_step("merge", branch->id()));
  co_return Reply{merged ? 200U : 409U, std::move(report), false, {}};
}

asio::awaitable<Result<Reply>> tree(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::look);
  auto session = CO_TRY(co_await std::move(finding));
  auto looking = parts.sessions.tree(call->caller, session);
  co_return Reply{200, CO_TRY(co_await std::move(looking)), false, {}};
}

asio::awaitable<Result<Reply>> snapshot(ApiParts parts, CallPtr call) {
  auto finding = find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto saving = parts.sessions.snapshot(call->caller, session, text_of(call->body.at("name")));
  co_return Reply{201, CO_TRY(co_await std::move(saving)), false, {}};
}

asio::awaitable<Result<Reply>> list_snapshots(ApiParts parts, CallPtr call) {
  co_return Reply{200,
                  json::object{{"snapshots", parts.sessions.snapshots().list(call->caller.id)}},
                  false,
                  {}};
}

asio::awaitable<Result<Reply>> remove_snapshot(ApiParts parts, CallPtr call) {
  auto removing = parts.sessions.remove_snapshot(call->caller, call->parts[0]);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

}  // namespace

std::vector<Route> branch_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "branches";
  const std::string one = "/api/sessions/{id}";
  std::vector<Route> routes;
  routes.push_back({"POST",
                    one + "/checkpoint",
                    "saveCheckpoint",
                    tag,
                    "Save the session's files and the memory of its interpreters under a name",
                    with(checkpoint),
                    {{201, "What was saved, and what was not", "Checkpoint"}},
                    "CheckpointSave"});
  routes.push_back({"GET",
                    one + "/checkpoints",
                    "listCheckpoints",
                    tag,
                    "What the session can go back to",
                    with(list),
                    {{200, "The oldest first", "CheckpointList"}}});
  routes.push_back({"DELETE",
                    one + "/checkpoints/{name}",
                    "removeCheckpoint",
                    tag,
                    "Forget a checkpoint",
                    with(remove),
                    {{204, "It is gone"}}});
  routes.push_back({"POST",
                    one + "/rollback",
                    "rollBack",
                    tag,
                    "Return the session to a checkpoint: what ran since then ends, and never was",
                    with(rollback),
                    {{200, "Where the session is now", "Checkpoint"}},
                    "CheckpointName"});
  routes.push_back({"POST",
                    one + "/undo",
                    "undo",
                    tag,
                    "Return to before what was run last, in a session with auto_checkpoint",
                    with(undo),
                    {{200, "Where the session is now", "Checkpoint"}}});
  routes.push_back({"POST",
                    one + "/fork",
                    "forkSession",
                    tag,
                    "Make sessions that go on from this very moment, or from a checkpoint",
                    with(fork),
                    {{201, "The new sessions", "Fork"}},
                    "ForkStart"});
  routes.back().body_optional = true;
  routes.push_back(
      {"POST",
       one + "/merge",
       "mergeSession",
       tag,
       "Bring the files that a branch has changed into this session: all or nothing",
       with(merge),
       {{200, "What was changed", "Merge"},
        {409, "What both have changed, or why it cannot be merged now", "MergeRefused"}},
       "MergeStart"});
  routes.push_back({"POST",
                    one + "/snapshot",
                    "saveSnapshot",
                    tag,
                    "Keep the session's state as an environment for new sessions",
                    with(snapshot),
                    {{201, "The environment", "Snapshot"}},
                    "SnapshotSave"});
  routes.push_back({"GET",
                    one + "/tree",
                    "showTree",
                    tag,
                    "Checkpoints and branches, from the first session on",
                    with(tree),
                    {{200, "The tree", "BranchTree"}}});
  routes.push_back({"GET",
                    "/api/snapshots",
                    "listSnapshots",
                    tag,
                    "States that were kept as environments",
                    with(list_snapshots),
                    {{200, "Your own", "SnapshotList"}}});
  routes.push_back({"DELETE",
                    "/api/snapshots/{name}",
                    "removeSnapshot",
                    tag,
                    "Forget a state; sessions that were made from it stay",
                    with(remove_snapshot),
                    {{204, "It is gone"}}});
  return routes;
}

}  // namespace asr
