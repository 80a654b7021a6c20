// Measures a running server from outside, over plain sockets, and prints one JSON object. Judges
// nothing: run.py compares.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>

#include "http_client.hpp"

namespace {

using namespace bench;

struct Options {
  std::string mode;
  std::uint16_t port = 0;
  unsigned count = 100;
  unsigned clients = 64;
  double seconds = 10;
  std::uint64_t bytes = 1ULL << 30;
  unsigned pause_ms = 0;
};

// A loop of commands needs more than half a core.
constexpr std::string_view kAllCores = R"({"limits":{"cpus":64}})";
constexpr std::string_view kTrue = R"({"argv":["/bin/true"]})";

void run_true(Connection& connection, const std::string& id) {
  Answer done = connection.call("POST", "/api/sessions/" + id + "/commands", kTrue);
  expect(done, 200);
  if (done.body.find("\"exit_code\":0") == std::string::npos)
    throw std::runtime_error("/bin/true: " + done.body.substr(0, 300));
}

// ---- the measurements
// -----------------------------------------------------------------------------

// One after the other, with time for the pool to fill again.
std::string measure_create(const Options& options) {
  Connection connection(options.port);
  Times create_ns;
  Times delete_ns;
  for (unsigned i = 0; i < options.count; ++i) {
    auto start = Clock::now();
    std::string id = create(connection);
    create_ns.push_back(since(start));
    start = Clock::now();
    remove(connection, id);
    delete_ns.push_back(since(start));
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  }
  return fmt::format(R"({{"create_ns": {}, "delete_ns": {}}})", json_list(create_ns),
                     json_list(delete_ns));
}

std::string measure_exec(const Options& options) {
  Connection connection(options.port);
  std::string id = create(connection, kAllCores);
  Times exec_ns;
  for (unsigned i = 0; i < options.count + 5; ++i) {
    auto start = Clock::now();
    run_true(connection, id);
    if (i >= 5) exec_ns.push_back(since(start));
  }
  remove(connection, id);
  return fmt::format(R"({{"exec_ns": {}}})", json_list(exec_ns));
}

// Each client makes, uses and removes sessions until the time is over.
std::string measure_churn(const Options& options) {
  std::atomic<unsigned> errors = 0;
  std::vector<Times> cycles(options.clients);
  std::barrier ready(static_cast<std::ptrdiff_t>(options.clients) + 1);
  Clock::time_point start;
  auto work = [&](unsigned number) {
    Connection connection(options.port);
    ready.arrive_and_wait();
    auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    while (Clock::now() < end) {
      try {
        auto began = Clock::now();
        std::string id = create(connection, kAllCores);
        run_true(connection, id);
        remove(connection, id);
        cycles[number].push_back(since(began));
      } catch (const std::exception& problem) {
        std::fprintf(stderr, "http_bench: %s\n", problem.what());
        ++errors;
        return;
      }
    }
  };
  std::thread all([&] { with_clients(options.clients, work); });
  ready.arrive_and_wait();
  start = Clock::now();
  all.join();
  double took = static_cast<double>(since(start)) / 1e9;
  Times together;
  for (const Times& one : cycles) together.insert(together.end(), one.begin(), one.end());
  return fmt::format(R"({{"per_second": {:.1f}, "cycle_ns": {}, "errors": {}, "clients": {}}})",
                     static_cast<double>(together.size()) / took, json_list(together),
                     errors.load(), options.clients);
}

// All at once, each over a connection of its own.
std::string measure_burst(const Options& options) {
  std::vector<std::string> ids(options.count);
  Times times(options.count);
  std::atomic<unsigned> errors = 0;
  std::barrier ready(static_cast<std::ptrdiff_t>(options.count));
  std::atomic<std::int64_t> last = 0;
  Clock::time_point start;
  with_clients(options.count, [&](unsigned number) {
    try {
      Connection connection(options.port);
      ready.arrive_and_wait();
      if (number == 0) start = Clock::now();
      auto began = Clock::now();
      ids[number] = create(connection);
      times[number] = since(began);
      std::int64_t now = times[number];
      std::int64_t seen = last.load();
      while (now > seen && !last.compare_exchange_weak(seen, now)) {
      }
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "http_bench: %s\n", problem.what());
      ++errors;
    }
  });
  Connection connection(options.port);
  for (const std::string& id : ids)
    if (!id.empty()) remove(connection, id);
  return fmt::format(R"({{"last_ns": {}, "create_ns": {}, "errors": {}}})", last.load(),
                     json_list(times), errors.load());
}

std::string measure_transfer(const Options& options) {
  Connection connection(options.port);
  std::uint64_t mib = options.bytes >> 20;
  std::string id =
      create(connection, fmt::format(R"({{"limits":{{"memory":"{}M","disk":"{}M","cpus":64}}}})",
                                     2 * mib + 256, mib + 64));
  std::string target = "/api/sessions/" + id + "/files?path=/workspace/data";
  std::string block(1 << 20, '\0');
  auto start = Clock::now();
  connection.begin("PUT", target, mib << 20);
  for (std::uint64_t i = 0; i < mib; ++i) connection.send_all(block);
  expect(connection.answer(), 200);
  std::int64_t up = since(start);
  start = Clock::now();
  connection.begin("GET", target, 0);
  std::uint64_t length = connection.skip_answer();
  std::int64_t down = since(start);
  remove(connection, id);
  return fmt::format(R"({{"up_ns": {}, "down_ns": {}, "bytes": {}}})", up, down, length);
}

int measure(const Options& options) {
  raise_descriptor_limit();
  std::string report = options.mode == "create"  ? measure_create(options)
                       : options.mode == "exec"  ? measure_exec(options)
                       : options.mode == "churn" ? measure_churn(options)
                       : options.mode == "burst" ? measure_burst(options)
                                                 : measure_transfer(options);
  fmt::print("{}\n", report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Measures a server; prints JSON. Its admin key is in AGENT_SANDBOX_ADMIN_KEY.");
  app.add_option("mode", options.mode)
      ->required()
      ->check(CLI::IsMember({"create", "exec", "churn", "burst", "transfer"}));
  app.add_option("--port", options.port)->required();
  app.add_option("--count", options.count, "How often, or how many at once (burst)");
  app.add_option("--clients", options.clients, "Connections side by side (churn)");
  app.add_option("--seconds", options.seconds, "How long (churn)");
  app.add_option("--bytes", options.bytes, "How much (transfer)");
  app.add_option("--pause-ms", options.pause_ms, "Between two (create)");
  CLI11_PARSE(app, argc, argv);
  if (!std::getenv("AGENT_SANDBOX_ADMIN_KEY"))
    throw std::runtime_error("AGENT_SANDBOX_ADMIN_KEY is not set");
  return measure(options);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "http_bench: %s\n", failure.what());
  return 1;
}
