// Forks and snapshots of sandboxes. A snapshot is a template, too: whoever names it goes on from
// it.
#include "api/e2b/answer.hpp"
#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/sandbox_request.hpp"
#include "api/e2b/template_name.hpp"
#include "base/id.hpp"
#include "session/templates.hpp"

namespace asr {

namespace {

constexpr std::int64_t kMostForks = 100;
constexpr std::size_t kPage = 100;

asio::awaitable<Result<Reply>> fork(E2bParts parts, CallPtr call) {
  Sessions::ForkRequest wanted;
  wanted.ttl = CO_TRY(e2b_timeout_from(call->body, 15, parts.options));
  wanted.count =
      static_cast<std::uint32_t>(CO_TRY(E2bFields(call->body).number("count", 1, 1, kMostForks)));
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  json::array made;
  std::uint32_t count = wanted.count;
  auto forking = parts.sessions().fork(call->caller, session, std::move(wanted));
  auto branches = co_await std::move(forking);
  // What the sandbox itself is the reason for fails as a whole; what each of them costs, one by
  // one.
  if (!branches && branches.error().code != Errc::exhausted) co_return fail(branches.error());
  if (branches)
    for (const auto& branch : branches->sessions)
      made.push_back({{"sandbox", e2b_sandbox(parts, *branch, call->head())}});
  else
    for (std::uint32_t i = 0; i < count; ++i)
      made.push_back({{"error", e2b_error(429, branches.error())}});
  co_return Reply{201, std::move(made), false, {}};
}

json::object about(const std::string& name) {
  return {{"snapshotID", name}, {"names", json::array{name + ":default"}}};
}

asio::awaitable<Result<Reply>> snapshot(E2bParts parts, CallPtr call) {
  std::string name = CO_TRY(E2bFields(call->body).text_if("name")).value_or("");
  if (!CO_TRY(E2bFields(call->body).flag("memory")).value_or(true))
    co_return fail(Errc::unsupported, "memory: a snapshot keeps that of Python's interpreters here",
                   "leave it out");
  if (name.empty())
    name = "snapshot-" + random_name(12);
  else
    name = CO_TRY(e2b_template_name(name)).name;
  if (e2b_built_in(name))
    co_return fail(Errc::conflict, "\"" + name + "\" is a template of this server's own",
                   "choose another name");
  auto finding = e2b_find(parts, call, Access::use);
  auto session = CO_TRY(co_await std::move(finding));
  auto saving = parts.sessions().snapshot(call->caller, session, name);
  CO_TRY(co_await std::move(saving));
  co_return Reply{201, about(name), false, {}};
}

asio::awaitable<Result<Reply>> list(E2bParts parts, CallPtr call) {
  auto session = call->head().parameter("sandboxID").value_or("");
  auto wanted = call->head().parameter("name").value_or("");
  auto token = call->head().parameter("nextToken").value_or("");
  auto limit = static_cast<std::size_t>(CO_TRY(call->number("limit", kPage, 1, kPage)));
  if (!wanted.empty()) wanted = CO_TRY(e2b_template_name(wanted)).name;
  std::map<std::string, json::object> all;  // by name: pages go on where the last one ended
  for (const json::value& each : parts.sessions().snapshots().list(call->caller.id)) {
    std::string name(each.at("name").get_string());
    const json::value* from = each.get_object().if_contains("session_id");
    if (!session.empty() && (!from || from->get_string() != e2b_sandbox_id(session))) continue;
    if (Templates::is_snapshot_of_build(name)) continue;  // GET /templates has those.
    if ((!wanted.empty() && name != wanted) || (!token.empty() && name <= token)) continue;
    all[name] = about(name);
    all[name]["createdAt"] = each.at("created_at");
  }
  Reply reply{200, json::array(), false, {}};
  std::string last;
  for (auto& [name, entry] : all) {
    if (reply.body.get_array().size() == limit) {
      reply.headers.add("X-Next-Token", last);
      break;
    }
    last = name;
    reply.body.get_array().push_back(std::move(entry));
  }
  co_return reply;
}

}  // namespace

std::vector<Route> e2b_branch_routes(const E2bParts& parts) {
  std::vector<Route> routes;
  routes.push_back(
      e2b_route(parts, "POST", "/sandboxes/{id}/fork", "e2bFork", fork, E2bBody::optional));
  routes.push_back(e2b_route(parts, "POST", "/sandboxes/{id}/snapshots", "e2bSnapshot", snapshot,
                             E2bBody::optional));
  routes.push_back(
      e2b_route(parts, "GET", "/snapshots", "e2bListSnapshots", list, E2bBody::none, Role::viewer));
  return routes;
}

}  // namespace asr
