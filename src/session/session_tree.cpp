// How sessions came from each other, and what was saved of them, as a tree.
#include "session/sessions.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostNodes = 1000;

enum class Parent { told, hidden };

json::object node_of(const Session& session, Parent parent) {
  json::array checkpoints;
  for (const CheckpointPtr& one : session.checkpoints().all()) checkpoints.push_back(json_of(*one));
  std::uint64_t at = session.checkpoints().at();
  json::object node{{"session_id", session.id()},
                    {"state", to_string(session.state())},
                    {"checkpoints", std::move(checkpoints)},
                    {"at", at == 0 ? json::value(nullptr) : json::value(at)},
                    {"branches", json::array()}};
  const auto& origin = session.request().origin;
  if (origin && parent == Parent::told)
    node["from"] = {{"session_id", origin->session},
                    {"checkpoint", origin->checkpoint == 0 ? json::value(nullptr)
                                                           : json::value(origin->checkpoint)}};
  return node;
}

}  // namespace

asio::awaitable<Result<json::object>> Sessions::tree(Caller caller,
                                                     std::shared_ptr<Session> session) {
  // Only what the caller may see; whoever sees a branch need not see where it came from.
  std::multimap<std::string, std::shared_ptr<Session>> branches;
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [id, one] : live_) all.push_back(one);
  auto may_see = [&](const std::shared_ptr<Session>& one) {
    return one == session || one->owner() == caller.id || caller.role >= Role::oper;
  };
  for (const auto& one : all)
    if (one->request().origin && may_see(one) && branches.size() < kMostNodes)
      branches.emplace(one->request().origin->session, one);
  std::shared_ptr<Session> top = session;
  for (std::size_t steps = 0; top->request().origin && steps < kMostNodes; ++steps) {
    auto above = live_.find(top->request().origin->session);
    if (above == live_.end() || !may_see(above->second)) break;
    top = above->second;
  }
  // Branches are made after what they come from, so there is no circle.
  std::function<json::object(const Session&)> draw = [&](const Session& of) {
    // The topmost may come from one that is not the caller's to know.
    json::object node = node_of(of, &of == top.get() ? Parent::hidden : Parent::told);
    auto [begin, end] = branches.equal_range(of.id());
    for (auto it = begin; it != end; ++it)
      node["branches"].get_array().push_back(draw(*it->second));
    return node;
  };
  co_return json::object{{"tree", draw(*top)}, {"session_id", session->id()}};
}

}  // namespace asr
