// Measures the engine through its public interface and prints one JSON object. Judges nothing:
// run.py compares.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "engine/engine.hpp"

namespace asr {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<std::int64_t>;  // nanoseconds
using Report = asio::awaitable<Result<std::string>>;

constexpr unsigned kWarmUp = 5;

struct Options {
  std::string mode;
  unsigned count = 100;
  double seconds = 30;
  unsigned concurrency = 4;
  unsigned threads = 1;
  unsigned zygotes = 0;
  std::string preset = "standard";
};

std::int64_t since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

std::string json_list(const Times& times) { return fmt::format("[{}]", fmt::join(times, ", ")); }

// ---- memory of processes
// ------------------------------------------------------------------------------------------

std::int32_t number_of(std::string_view text) {
  std::int32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Every process on this machine and its parent.
std::map<std::int32_t, std::int32_t> parents() {
  std::map<std::int32_t, std::int32_t> result;
  std::error_code gone;  // Processes end while the folder is read.
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    std::int32_t pid = number_of(entry.path().filename().native());
    std::string stat;
    if (pid <= 0 || !std::getline(std::ifstream(entry.path() / "stat"), stat)) continue;
    std::size_t name_end = stat.rfind(')');  // "pid (name) state parent …"
    if (name_end != std::string::npos && name_end + 4 < stat.size())
      result[pid] = number_of(std::string_view(stat).substr(name_end + 4));
  }
  return result;
}

std::uint64_t pss_bytes(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", pid));
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "Pss:" && file >> kib) return kib * 1024;
  }
  return 0;
}

struct TreeMemory {
  std::uint64_t bytes = 0;
  unsigned processes = 0;
};

// The proportional set sizes of `root` and all its descendants together.
TreeMemory tree_pss(std::int32_t root) {
  TreeMemory sum;
  const auto parent_of = parents();
  for (auto [pid, parent] : parent_of) {
    std::int32_t ancestor = pid;
    while (ancestor != root) {
      auto next = parent_of.find(ancestor);
      if (next == parent_of.end()) break;
      ancestor = next->second;
    }
    if (ancestor != root) continue;
    sum.bytes += pss_bytes(pid);
    ++sum.processes;
  }
  return sum;
}

// ---- the measurements
// ---------------------------------------------------------------------------------------------

class Bench {
 public:
  Bench(Engine& engine, Options options) : engine_(engine), options_(std::move(options)) {
    spec_ = spec_of(*parse_preset(options_.preset));
    // A loop that only starts programs needs more than half a core: it would measure the quota, not
    // the engine.
    spec_.limits.milli_cpus = 1000 * std::max(1U, std::thread::hardware_concurrency());
  }

  Report run() {
    if (options_.mode == "cold") return cold();
    if (options_.mode == "warm") return warm();
    if (options_.mode == "exec") return exec();
    if (options_.mode == "cycle") return cycle();
    if (options_.mode == "sustained") return sustained();
    if (options_.mode == "idle") return idle();
    return alive();
  }

 private:
  using SandboxPtr = std::shared_ptr<Sandbox>;

  static asio::awaitable<Result<void>> run_true(Sandbox* sandbox) {
    Command command{.argv = {"/bin/true"}};
    RunResult result = CO_TRY(co_await sandbox->run(std::move(command)));
    if (!result.status.ok())
      co_return fail(Errc::internal,
                     fmt::format("/bin/true: {}, exit code {}", to_string(result.status.reason),
                                 result.status.exit_code));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> one_cycle() {
    SandboxPtr sandbox = CO_TRY(co_await engine_.create_cold(spec_));
    CO_TRY(co_await run_true(sandbox.get()));
    CO_TRY(co_await sandbox->destroy());
    co_return Result<void>();
  }

  // A new sandbox until its guest has answered; what comes after is not counted.
  Report cold() {
    Times create, destroy;
    for (unsigned i = 0; i < options_.count + kWarmUp; ++i) {
      auto start = Clock::now();
      SandboxPtr sandbox = CO_TRY(co_await engine_.create_cold(spec_));
      create.push_back(since(start));
      start = Clock::now();
      CO_TRY(co_await sandbox->destroy());
      destroy.push_back(since(start));
    }
    create.erase(create.begin(), create.begin() + kWarmUp);
    destroy.erase(destroy.begin(), destroy.begin() + kWarmUp);
    co_return fmt::format(R"({{"create_ns": {}, "destroy_ns": {}}})", json_list(create),
                          json_list(destroy));
  }

  PoolState pool() const {
    for (PoolState& state : engine_.pools())
      if (state.key == pool_key(spec_)) return state;
    return {};
  }

  // Small bursts out of a pool that is full before each, so that every one could be warm.
  Report warm() {
    constexpr unsigned kBurst = 4;
    CO_TRY(co_await engine_.warm(spec_, {.size = 4 * kBurst, .refill_at_once = 2}));
    asio::steady_timer pause(co_await asio::this_coro::executor);
    Times hand_out;
    std::vector<SandboxPtr> taken;
    while (hand_out.size() < options_.count) {
      for (auto deadline = Clock::now() + std::chrono::seconds(10); pool().ready < pool().wanted;) {
        if (Clock::now() > deadline)
          co_return fail(Errc::timeout, "the pool was not refilled in 10 s");
        pause.expires_after(std::chrono::milliseconds(2));
        co_await pause.async_wait(asio::use_awaitable);
      }
      for (unsigned i = 0; i < kBurst; ++i) {
        auto start = Clock::now();
        taken.push_back(CO_TRY(co_await engine_.create(spec_)));
        hand_out.push_back(since(start));
      }
      for (SandboxPtr& sandbox : taken) CO_TRY(co_await sandbox->destroy());
      taken.clear();
    }
    PoolState state = pool();
    CO_TRY(co_await engine_.drain(spec_));
    co_return fmt::format(R"({{"hand_out_ns": {}, "served_warm": {}, "served_cold": {}}})",
                          json_list(hand_out), state.served_warm, state.served_cold);
  }

  Report exec() {
    SandboxPtr sandbox = CO_TRY(co_await engine_.create_cold(spec_));
    Times times;
    for (unsigned i = 0; i < options_.count + kWarmUp; ++i) {
      auto start = Clock::now();
      CO_TRY(co_await run_true(sandbox.get()));
      if (i >= kWarmUp) times.push_back(since(start));
    }
    CO_TRY(co_await sandbox->destroy());
    co_return fmt::format(R"({{"exec_ns": {}}})", json_list(times));
  }

  Report cycle() {
    Times times;
    for (unsigned i = 0; i < options_.count + kWarmUp; ++i) {
      auto start = Clock::now();
      CO_TRY(co_await one_cycle());
      if (i >= kWarmUp) times.push_back(since(start));
    }
    co_return fmt::format(R"({{"cycle_ns": {}}})", json_list(times));
  }

  // How many cycles one of several concurrent loops made until `end`.
  asio::awaitable<Result<std::uint64_t>> cycle_until(Clock::time_point end) {
    std::uint64_t cycles = 0;
    for (; Clock::now() < end; ++cycles) CO_TRY(co_await one_cycle());
    co_return cycles;
  }

  using DoneChannel = asio::experimental::concurrent_channel<void(boost::system::error_code,
                                                                  Result<std::uint64_t>)>;

  void spawn_loop(const asio::any_io_executor& executor, Clock::time_point end, DoneChannel& done) {
    asio::co_spawn(executor, cycle_until(end),
                   [&done](const std::exception_ptr& failure, Result<std::uint64_t> cycles) {
                     if (failure) cycles = fail(Errc::internal, "a cycle threw");
                     done.try_send(boost::system::error_code(), std::move(cycles));
                   });
  }

  Report sustained() {
    auto executor = co_await asio::this_coro::executor;
    DoneChannel done(executor, options_.concurrency);
    auto start = Clock::now();
    auto end = start + std::chrono::nanoseconds(static_cast<std::int64_t>(options_.seconds * 1e9));
    for (unsigned i = 0; i < options_.concurrency; ++i) spawn_loop(executor, end, done);
    std::uint64_t cycles = 0;
    std::optional<Error> failed;  // All are waited for, so that none outlives `done`.
    for (unsigned i = 0; i < options_.concurrency; ++i) {
      Result<std::uint64_t> n = co_await done.async_receive(asio::use_awaitable);
      if (n) cycles += *n;
      if (!n && !failed) failed = n.error();
    }
    if (failed) co_return fail(*std::move(failed));
    double took = static_cast<double>(since(start)) / 1e9;
    co_return fmt::format(
        R"({{"cycles": {}, "seconds": {:.3f}, "per_second": {:.1f}, "concurrency": {}, "threads": {}}})",
        cycles, took, static_cast<double>(cycles) / took, options_.concurrency, options_.threads);
  }

  // Alone first: shared pages are divided by the number of sharers, so the first sandbox costs
  // most.
  Report idle() {
    asio::steady_timer settle(co_await asio::this_coro::executor);
    std::vector<SandboxPtr> sandboxes;
    TreeMemory alone;
    TreeMemory together;
    while (sandboxes.size() < std::max(1U, options_.count)) {
      sandboxes.push_back(CO_TRY(co_await engine_.create_cold(spec_)));
      CO_TRY(co_await run_true(sandboxes.back().get()));
      if (sandboxes.size() > 1) continue;
      settle.expires_after(std::chrono::milliseconds(200));
      co_await settle.async_wait(asio::use_awaitable);
      alone = tree_pss(sandboxes.front()->host_pid());
    }
    settle.expires_after(std::chrono::milliseconds(200));
    co_await settle.async_wait(asio::use_awaitable);
    std::uint64_t charged = 0;
    for (SandboxPtr& sandbox : sandboxes) {
      TreeMemory one = tree_pss(sandbox->host_pid());
      together.bytes += one.bytes;
      together.processes += one.processes;
      charged += CO_TRY(co_await sandbox->usage()).memory_bytes;
    }
    const std::size_t n = sandboxes.size();
    for (SandboxPtr& sandbox : sandboxes) CO_TRY(co_await sandbox->destroy());
    co_return fmt::format(
        R"({{"alone_pss_bytes": {}, "mean_pss_bytes": {}, "mean_charged_bytes": {}, "processes": {}, "sandboxes": {}}})",
        alone.bytes, together.bytes / n, charged / n, alone.processes, n);
  }

  // All at once. A sandbox that does not answer is counted, not fatal.
  Report alive() {
    std::vector<SandboxPtr> sandboxes;
    Times create;
    while (sandboxes.size() < options_.count) {
      auto start = Clock::now();
      sandboxes.push_back(CO_TRY(co_await engine_.create_cold(spec_)));
      create.push_back(since(start));
    }
    unsigned answered = 0;
    unsigned executed = 0;
    auto start = Clock::now();
    for (SandboxPtr& sandbox : sandboxes)
      answered += (co_await sandbox->ping()).has_value() ? 1 : 0;
    std::int64_t ping_all = since(start);
    start = Clock::now();
    for (SandboxPtr& sandbox : sandboxes)
      executed += (co_await run_true(sandbox.get())).has_value() ? 1 : 0;
    std::int64_t exec_all = since(start);
    start = Clock::now();
    for (SandboxPtr& sandbox : sandboxes) CO_TRY(co_await sandbox->destroy());
    co_return fmt::format(
        R"({{"create_ns": {}, "answered": {}, "executed": {}, "ping_all_ns": {}, "exec_all_ns": {}, "destroy_all_ns": {}}})",
        json_list(create), answered, executed, ping_all, exec_all, since(start));
  }

  Engine& engine_;
  Options options_;
  SandboxSpec spec_;
};

asio::awaitable<int> measure(Engine* engine, Options options) {
  Bench bench(*engine, std::move(options));
  Result<std::string> report = co_await bench.run();
  Result<void> stopped = co_await engine->stop();
  if (report && stopped) {
    fmt::print("{}\n", *report);
    co_return 0;
  }
  const Error& error = report ? stopped.error() : report.error();
  fmt::print(stderr, "engine_bench: {}{}{}\n", error.what, error.hint.empty() ? "" : "; ",
             error.hint);
  co_return 1;
}

void raise_open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int run(Options options) {
  raise_open_files();
  asio::io_context io;
  auto engine = Engine::start(io.get_executor(), {.zygotes = options.zygotes});
  if (!engine) {
    fmt::print(stderr, "engine_bench: {}\n", engine.error().what);
    return 1;
  }
  const unsigned threads = std::max(1U, options.threads);
  int status = 1;
  asio::co_spawn(io, measure(engine->get(), std::move(options)),
                 [&](const std::exception_ptr& failure, int result) {
                   if (failure) std::rethrow_exception(failure);
                   status = result;
                   io.stop();
                 });
  std::vector<std::jthread> others(threads - 1);
  for (std::jthread& thread : others) thread = std::jthread([&io] { io.run(); });
  io.run();
  others.clear();
  return status;
}

}  // namespace
}  // namespace asr

int main(int argc, char** argv) try {
  asr::Options options;
  CLI::App app("Measures the engine; prints JSON");
  app.add_option("mode", options.mode)
      ->required()
      ->check(CLI::IsMember({"cold", "warm", "exec", "cycle", "sustained", "idle", "alive"}));
  app.add_option("--count", options.count, "How often, or how many sandboxes");
  app.add_option("--seconds", options.seconds, "How long (sustained)");
  app.add_option("--concurrency", options.concurrency, "Loops side by side (sustained)");
  app.add_option("--threads", options.threads, "Threads that run the engine's executor");
  app.add_option("--zygotes", options.zygotes, "0: as many as the engine chooses");
  app.add_option("--preset", options.preset)->check(CLI::IsMember({"strict", "standard"}));
  CLI11_PARSE(app, argc, argv);
  return asr::run(std::move(options));
} catch (const std::exception& failure) {
  std::fprintf(stderr, "engine_bench: %s\n", failure.what());
  return 1;
}
