// Measures how soon code runs in sessions of a running server, from outside, and prints one JSON
// object. Judges nothing: run.py compares.
#include <CLI/CLI.hpp>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <memory>

#include "http_client.hpp"

namespace {

using namespace bench;

struct Options {
  std::string mode;
  std::uint16_t port = 0;
  unsigned count = 100;
  unsigned every_ms = 20;
  unsigned pause_ms = 0;
  double seconds = 120;
};

constexpr std::string_view kSum = R"({"code":"1+1"})";

// A cell in the session's Python context; the answer must be right, or nothing is measured.
void add_up(Connection& connection, const std::string& id) {
  Answer done = connection.call("POST", "/api/sessions/" + id + "/execute", kSum);
  expect(done, 200);
  if (done.body.find(R"("text/plain":"2")") == std::string::npos)
    throw std::runtime_error("1+1: " + done.body.substr(0, 300));
}

void pause(const Options& options) {
  std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
}

// ---- the measurements
// -----------------------------------------------------------------------------

// From nothing to the first answer, one after the other on a kept connection, with time for the
// pool to fill again.
std::string measure_first(const Options& options) {
  Connection connection(options.port);
  Times first_ns;
  Times create_ns;
  for (unsigned i = 0; i < options.count; ++i) {
    auto start = Clock::now();
    std::string id = create(connection);
    create_ns.push_back(since(start));
    add_up(connection, id);
    first_ns.push_back(since(start));
    remove(connection, id);
    pause(options);
  }
  return fmt::format(R"({{"first_ns": {}, "create_ns": {}}})", json_list(first_ns),
                     json_list(create_ns));
}

// The same by many, each over a connection of its own: number i begins `every_ms` * i after the
// start, whether the others are ready or not. With zero all begin at once.
std::string measure_many(const Options& options, unsigned every_ms) {
  std::vector<std::unique_ptr<Connection>> connections;
  while (connections.size() < options.count)
    connections.push_back(std::make_unique<Connection>(options.port));
  std::vector<std::string> ids(options.count);
  Times times(options.count);
  std::atomic<unsigned> errors = 0;
  std::atomic<std::int64_t> last = 0;
  Clock::time_point start;
  std::barrier ready(static_cast<std::ptrdiff_t>(options.count),
                     [&start]() noexcept { start = Clock::now(); });
  with_clients(options.count, [&](unsigned number) {
    Connection& connection = *connections[number];
    ready.arrive_and_wait();
    std::this_thread::sleep_until(start + std::chrono::milliseconds(every_ms) * number);
    try {
      auto began = Clock::now();
      ids[number] = create(connection);
      add_up(connection, ids[number]);
      times[number] = since(began);
      std::int64_t now = since(start);
      std::int64_t seen = last.load();
      while (now > seen && !last.compare_exchange_weak(seen, now)) {
      }
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "sessions_bench: %s\n", problem.what());
      ++errors;
    }
  });
  for (unsigned i = 0; i < options.count; ++i)
    if (!ids[i].empty()) remove(*connections[i], ids[i]);
  return fmt::format(R"({{"first_ns": {}, "last_ns": {}, "errors": {}}})", json_list(times),
                     last.load(), errors.load());
}

// A cell in an interpreter that lives, and one in an interpreter that was just replaced.
std::string measure_live(const Options& options) {
  constexpr unsigned kWarmUp = 10;
  Connection connection(options.port);
  std::string id = create(connection);
  Times live_ns;
  for (unsigned i = 0; i < options.count + kWarmUp; ++i) {
    auto start = Clock::now();
    add_up(connection, id);
    if (i >= kWarmUp) live_ns.push_back(since(start));
  }
  remove(connection, id);
  return fmt::format(R"({{"live_ns": {}}})", json_list(live_ns));
}

std::string measure_restart(const Options& options) {
  Connection connection(options.port);
  std::string id = create(connection);
  add_up(connection, id);
  Times restart_ns;
  for (unsigned i = 0; i < options.count; ++i) {
    auto start = Clock::now();
    expect(connection.call("POST", "/api/sessions/" + id + "/contexts/python/restart"), 200);
    add_up(connection, id);
    restart_ns.push_back(since(start));
    pause(options);
  }
  remove(connection, id);
  return fmt::format(R"({{"restart_ns": {}}})", json_list(restart_ns));
}

// As many as asked for, or as time allows; they stay, for others to look at. After each the time
// of a second cell in it.
std::string measure_alive(const Options& options) {
  Connection connection(options.port);
  Times first_ns;
  Times live_ns;
  std::string ids;
  std::string problem;
  auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  while (live_ns.size() < options.count && Clock::now() < end) try {
      auto start = Clock::now();
      std::string id = create(connection);
      ids += (ids.empty() ? "\"" : ", \"") + id + '"';
      add_up(connection, id);
      first_ns.push_back(since(start));
      start = Clock::now();
      add_up(connection, id);
      live_ns.push_back(since(start));
    } catch (const std::exception& failure) {
      problem = failure.what();  // The machine is full, or the server says so.
      std::fprintf(stderr, "sessions_bench: %s\n", failure.what());
      break;
    }
  return fmt::format(R"({{"first_ns": {}, "live_ns": {}, "ids": [{}], "complete": {}}})",
                     json_list(first_ns), json_list(live_ns), ids,
                     problem.empty() && live_ns.size() == options.count);
}

int measure(const Options& options) {
  raise_descriptor_limit();
  std::string report = options.mode == "first"       ? measure_first(options)
                       : options.mode == "staggered" ? measure_many(options, options.every_ms)
                       : options.mode == "burst"     ? measure_many(options, 0)
                       : options.mode == "live"      ? measure_live(options)
                       : options.mode == "restart"   ? measure_restart(options)
                                                     : measure_alive(options);
  fmt::print("{}\n", report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Measures sessions; prints JSON. The admin key is in AGENT_SANDBOX_ADMIN_KEY.");
  app.add_option("mode", options.mode)
      ->required()
      ->check(CLI::IsMember({"first", "staggered", "burst", "live", "restart", "alive"}));
  app.add_option("--port", options.port)->required();
  app.add_option("--count", options.count, "How often, or how many sessions");
  app.add_option("--every-ms", options.every_ms, "Between two beginnings (staggered)");
  app.add_option("--pause-ms", options.pause_ms, "After each (first, restart)");
  app.add_option("--seconds", options.seconds, "At most (alive)");
  CLI11_PARSE(app, argc, argv);
  if (!std::getenv("AGENT_SANDBOX_ADMIN_KEY"))
    throw std::runtime_error("AGENT_SANDBOX_ADMIN_KEY is not set");
  return measure(options);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "sessions_bench: %s\n", failure.what());
  return 1;
}
