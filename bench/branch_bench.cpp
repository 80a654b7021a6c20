// Measures how soon a session is saved, brought back, branched and merged by a running server, from
// outside, and prints one JSON object. What runs in the sessions is told by run.py, because others
// run the same. Judges nothing: run.py compares.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>

#include "http_client.hpp"

namespace {

using namespace bench;

struct Options {
  std::string mode;
  std::uint16_t port = 0;
  unsigned count = 20;
  unsigned children = 1;
  unsigned files = 100;
  unsigned pause_ms = 0;
  std::string session = "{}";
  std::string setup;
  std::string change;
  std::string look;
};

constexpr unsigned kWarmUp = 2;
constexpr unsigned kAskers = 8;       // connections over which many children are asked
constexpr unsigned kPerSession = 10;  // checkpoints, until another session is taken
constexpr std::string_view kSum = R"({"code":"1+1"})";
constexpr std::string_view kTrue = R"({"argv":["/bin/true"]})";

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + '"';
}

std::string path_of(const std::string& id, std::string_view rest) {
  return fmt::format("/api/sessions/{}/{}", id, rest);
}

void pause(const Options& options) {
  std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
}

// A cell in the session's Python context; gives its result, or nothing if it has none.
std::string run_cell(Connection& connection, const std::string& id, std::string_view code) {
  Answer done = connection.call("POST", path_of(id, "execute"),
                                fmt::format(R"({{"code":{}}})", quoted(code)));
  expect(done, 200);
  if (done.body.find(R"("status":"ok")") == std::string::npos)
    throw std::runtime_error(fmt::format("{}: {}", code, done.body.substr(0, 500)));
  constexpr std::string_view kBegin = R"("text/plain":")";
  std::size_t at = done.body.find(kBegin);
  if (at == std::string::npos) return "";
  at += kBegin.size();
  std::size_t end = at;
  while (done.body[end] != '"') end += done.body[end] == '\\' ? 2 : 1;
  return done.body.substr(at, end - at);
}

// State that is not what it was means that nothing was measured.
void expect_state(Connection& connection, const Options& options, const std::string& id,
                  const std::string& state) {
  std::string seen = run_cell(connection, id, options.look);
  if (seen != state)
    throw std::runtime_error(fmt::format("{} is {} instead of {}", options.look, seen, state));
}

std::string prepared_session(Connection& connection, const Options& options) {
  std::string id = create(connection, options.session);
  if (!options.setup.empty()) run_cell(connection, id, options.setup);
  return id;
}

std::int64_t save(Connection& connection, const std::string& id, std::string_view name) {
  std::string body = fmt::format(R"({{"name":"{}"}})", name);
  auto start = Clock::now();
  Answer saved = connection.call("POST", path_of(id, "checkpoint"), body);
  std::int64_t took = since(start);
  expect(saved, 201);
  if (saved.body.find(R"("memory":"saved")") == std::string::npos)
    throw std::runtime_error("no memory was saved: " + saved.body.substr(0, 500));
  return took;
}

// Times the way back, and adds the first cell's to it.
struct Pair {
  Times done_ns;
  Times cell_ns;
};

void roll_back(Connection& connection, const Options& options, const std::string& id,
               std::string_view name, const std::string& state, Pair& times) {
  run_cell(connection, id, options.change);
  pause(options);
  std::string body = fmt::format(R"({{"name":"{}"}})", name);
  auto start = Clock::now();
  expect(connection.call("POST", path_of(id, "rollback"), body), 200);
  times.done_ns.push_back(since(start));
  expect_state(connection, options, id, state);
  times.cell_ns.push_back(since(start));
}

// The children named in the answer to a fork.
std::vector<std::string> children_in(const Answer& forked, const std::string& parent) {
  constexpr std::string_view kBegin = R"("session_id":")";
  constexpr std::size_t kLength = 33;
  std::vector<std::string> ids;
  for (std::size_t at = forked.body.find(kBegin); at != std::string::npos;
       at = forked.body.find(kBegin, at + 1)) {
    std::string id = forked.body.substr(at + kBegin.size(), kLength);
    if (id != parent && std::find(ids.begin(), ids.end(), id) == ids.end())
      ids.push_back(std::move(id));
  }
  return ids;
}

std::vector<std::string> fork(Connection& connection, const std::string& id, unsigned count) {
  std::string body = fmt::format(R"({{"count":{}}})", count);
  Answer forked = connection.call("POST", path_of(id, "fork"), body);
  expect(forked, 201);
  auto ids = children_in(forked, id);
  if (ids.size() != count)
    throw std::runtime_error(fmt::format("{} children instead of {}", ids.size(), count));
  return ids;
}

// After a small change, so that the state is a new one.
void fork_and_remove(Connection& connection, const Options& options, const std::string& id,
                     unsigned count, Pair& times) {
  run_cell(connection, id, options.change);
  std::string state = run_cell(connection, id, options.look);
  pause(options);
  auto start = Clock::now();
  auto ids = fork(connection, id, count);
  times.done_ns.push_back(since(start));
  expect_state(connection, options, ids[0], state);
  times.cell_ns.push_back(since(start));
  for (const std::string& child : ids) remove(connection, child);
}

// ---- the measurements
// -----------------------------------------------------------------------------

// The first of a session on its own: it has more to save than those that follow.
std::string measure_checkpoint(const Options& options) {
  Connection connection(options.port);
  Times first_ns;
  Times again_ns;
  std::string id;
  for (unsigned i = 0; i < options.count; ++i) {
    bool is_first = i % kPerSession == 0;
    if (is_first && !id.empty()) remove(connection, id);
    if (is_first) id = prepared_session(connection, options);
    run_cell(connection, id, options.change);
    pause(options);
    (is_first ? first_ns : again_ns).push_back(save(connection, id, "here"));
    expect(connection.call("DELETE", path_of(id, "checkpoints/here")), 204);
  }
  remove(connection, id);
  return fmt::format(R"({{"first_ns": {}, "again_ns": {}}})", json_list(first_ns),
                     json_list(again_ns));
}

std::string measure_rollback(const Options& options) {
  Connection connection(options.port);
  std::string id = prepared_session(connection, options);
  save(connection, id, "here");
  std::string state = run_cell(connection, id, options.look);
  Pair not_counted;
  Pair times;
  for (unsigned i = 0; i < options.count + kWarmUp; ++i)
    roll_back(connection, options, id, "here", state, i < kWarmUp ? not_counted : times);
  remove(connection, id);
  return fmt::format(R"({{"rollback_ns": {}, "cell_ns": {}}})", json_list(times.done_ns),
                     json_list(times.cell_ns));
}

std::string measure_fork(const Options& options) {
  Connection connection(options.port);
  std::string id = prepared_session(connection, options);
  Pair not_counted;
  Pair times;
  for (unsigned i = 0; i < options.count + kWarmUp; ++i)
    fork_and_remove(connection, options, id, options.children, i < kWarmUp ? not_counted : times);
  remove(connection, id);
  return fmt::format(R"({{"fork_ns": {}, "cell_ns": {}}})", json_list(times.done_ns),
                     json_list(times.cell_ns));
}

// Many children at once, and a cell in each of them.
std::string measure_fork_many(const Options& options) {
  std::vector<std::unique_ptr<Connection>> askers;
  while (askers.size() < kAskers) askers.push_back(std::make_unique<Connection>(options.port));
  Connection connection(options.port);
  std::string id = prepared_session(connection, options);
  std::string state = run_cell(connection, id, options.look);
  pause(options);
  auto start = Clock::now();
  auto ids = fork(connection, id, options.children);
  std::int64_t fork_ns = since(start);
  std::atomic<unsigned> errors = 0;
  with_clients(kAskers, [&](unsigned number) {
    for (std::size_t i = number; i < ids.size(); i += kAskers) try {
        expect_state(*askers[number], options, ids[i], state);
      } catch (const std::exception& problem) {
        std::fprintf(stderr, "branch_bench: %s\n", problem.what());
        ++errors;
      }
  });
  std::int64_t cells_ns = since(start);
  for (const std::string& child : ids) remove(connection, child);
  remove(connection, id);
  return fmt::format(R"({{"fork_ns": {}, "cells_ns": {}, "errors": {}}})", fork_ns, cells_ns,
                     errors.load());
}

// `change` is what the branch does to its files; all of them must come back.
std::string measure_merge(const Options& options) {
  Connection connection(options.port);
  std::string id = prepared_session(connection, options);
  Times merge_ns;
  for (unsigned i = 0; i < options.count + kWarmUp; ++i) {
    std::string branch = fork(connection, id, 1)[0];
    run_cell(connection, branch, options.change);
    std::string state = run_cell(connection, branch, options.look);
    pause(options);
    std::string body = fmt::format(R"({{"from":"{}"}})", branch);
    auto start = Clock::now();
    Answer merged = connection.call("POST", path_of(id, "merge"), body);
    if (i >= kWarmUp) merge_ns.push_back(since(start));
    expect(merged, 200);
    unsigned told = 0;
    for (std::size_t at = 0; (at = merged.body.find("\"path\":", at)) != std::string::npos; ++at)
      ++told;
    if (told != options.files)
      throw std::runtime_error(fmt::format("{} files instead of {}", told, options.files));
    expect_state(connection, options, id, state);
    remove(connection, branch);
  }
  remove(connection, id);
  return fmt::format(R"({{"merge_ns": {}}})", json_list(merge_ns));
}

// The same work with and without a report of its effects, taking turns.
std::string measure_effects_of(const Options& options, std::string_view route,
                               std::string_view plain, std::string_view sign) {
  Connection connection(options.port);
  std::string id = create(connection, options.session);
  std::string asked(plain);
  asked.insert(asked.size() - 1, R"(,"effects":true)");
  if (Answer tried = connection.call("POST", path_of(id, route), asked); tried.status == 400) {
    remove(connection, id);
    return R"({"missing": "the server does not know effects"})";
  }
  Times without_ns;
  Times with_ns;
  for (unsigned i = 0; i < 2 * (options.count + kWarmUp); ++i) {
    bool wants = i % 2 == 1;
    auto start = Clock::now();
    Answer done = connection.call("POST", path_of(id, route), wants ? asked : plain);
    std::int64_t took = since(start);
    expect(done, 200);
    bool told = done.body.find("\"effects\":{") != std::string::npos;
    if (done.body.find(sign) == std::string::npos || told != wants)
      throw std::runtime_error("effects: " + done.body.substr(0, 500));
    if (i >= 2 * kWarmUp) (wants ? with_ns : without_ns).push_back(took);
  }
  remove(connection, id);
  return fmt::format(R"({{"without_ns": {}, "with_ns": {}}})", json_list(without_ns),
                     json_list(with_ns));
}

std::string measure_effects(const Options& options) {
  std::string command = measure_effects_of(options, "commands", kTrue, "\"exit_code\":0");
  std::string cell = measure_effects_of(options, "execute", kSum, R"("text/plain":"2")");
  return fmt::format(R"({{"command": {}, "cell": {}}})", command, cell);
}

// A session that was made big by `setup`: saved, saved again after a small change, brought back and
// branched.
std::string measure_growth(const Options& options) {
  Connection connection(options.port);
  std::string id = prepared_session(connection, options);
  pause(options);
  std::int64_t first_ns = save(connection, id, "first");
  run_cell(connection, id, options.change);
  pause(options);
  std::int64_t again_ns = save(connection, id, "again");
  std::string state = run_cell(connection, id, options.look);
  Pair rollbacks;
  Pair forks;
  for (unsigned i = 0; i < options.count; ++i)
    roll_back(connection, options, id, "again", state, rollbacks);
  for (unsigned i = 0; i < options.count; ++i) fork_and_remove(connection, options, id, 1, forks);
  remove(connection, id);
  return fmt::format(
      R"({{"first_ns": {}, "again_ns": {}, "rollback_ns": {}, "rollback_cell_ns": {}, )"
      R"("fork_ns": {}, "fork_cell_ns": {}}})",
      first_ns, again_ns, json_list(rollbacks.done_ns), json_list(rollbacks.cell_ns),
      json_list(forks.done_ns), json_list(forks.cell_ns));
}

int measure(const Options& options) {
  std::string report = options.mode == "checkpoint"  ? measure_checkpoint(options)
                       : options.mode == "rollback"  ? measure_rollback(options)
                       : options.mode == "fork"      ? measure_fork(options)
                       : options.mode == "fork_many" ? measure_fork_many(options)
                       : options.mode == "merge"     ? measure_merge(options)
                       : options.mode == "effects"   ? measure_effects(options)
                                                     : measure_growth(options);
  fmt::print("{}\n", report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Measures branches; prints JSON. The admin key is in AGENT_SANDBOX_ADMIN_KEY.");
  app.add_option("mode", options.mode)
      ->required()
      ->check(CLI::IsMember(
          {"checkpoint", "rollback", "fork", "fork_many", "merge", "effects", "growth"}));
  app.add_option("--port", options.port)->required();
  app.add_option("--count", options.count, "How often");
  app.add_option("--children", options.children, "Of one fork (fork, fork_many)");
  app.add_option("--files", options.files, "That the branch changes (merge)");
  app.add_option("--pause-ms", options.pause_ms, "Before each");
  app.add_option("--session", options.session, "What a session is made of, as JSON");
  app.add_option("--setup", options.setup, "A cell that prepares the session");
  app.add_option("--change", options.change, "A cell that is run before each");
  app.add_option("--look", options.look, "A cell whose result tells one state from another");
  CLI11_PARSE(app, argc, argv);
  if (!std::getenv("AGENT_SANDBOX_ADMIN_KEY"))
    throw std::runtime_error("AGENT_SANDBOX_ADMIN_KEY is not set");
  return measure(options);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "branch_bench: %s\n", failure.what());
  return 1;
}
