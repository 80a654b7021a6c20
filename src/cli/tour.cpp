// agent-sandbox tour: what the engine does, shown by doing it. One sandbox per step; each step says
// what it ran, what came of it and how long it took, and fails loudly when something did not hold.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <filesystem>

#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/run.hpp"
#include "cli/terminal.hpp"
#include "cli/trial.hpp"
#include "engine/engine.hpp"
#include "os/cgroup.hpp"

namespace asr {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

std::string first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  return std::string(text.substr(0, 100));
}

nanoseconds median(std::vector<nanoseconds> times) {
  if (times.empty()) return 0ns;
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

Command command_of(std::vector<std::string> argv, std::string user = "user") {
  Command command;
  command.argv = std::move(argv);
  command.user = std::move(user);
  return command;
}

bool has_programs(const std::vector<ProcessInfo>& processes) {
  return std::any_of(processes.begin(), processes.end(),
                     [](const ProcessInfo& process) { return process.pid != 1; });
}

class Tour {
 public:
  explicit Tour(Engine& engine) : engine_(engine) {}

  asio::awaitable<Result<void>> walk() {
    using Step = asio::awaitable<Result<void>> (Tour::*)();
    struct Stop {
      const char* title;
      Step step;
    };
    static constexpr Stop kStops[] = {
        {"A program runs in a computer of its own", &Tour::hello},
        {"What it writes stays inside, and is gone afterwards", &Tour::files},
        {"There is no network", &Tour::network},
        {"A fork bomb stops at the limit of processes", &Tour::fork_bomb},
        {"A memory bomb ends at the memory limit", &Tour::memory_bomb},
        {"An endless loop ends when its time is up", &Tour::endless_loop},
        {"Root inside has no power outside", &Tour::refusals},
        {"Sandboxes do not see each other", &Tour::neighbours},
        {"A warm pool hands sandboxes out at once", &Tour::pool},
    };
    for (const Stop& stop : kStops) {
      std::printf("\n%s\n", paint_.bold(std::to_string(++step_) + ". " + stop.title).c_str());
      auto walking = (this->*stop.step)();
      auto done = co_await std::move(walking);
      if (!done)
        expect(false,
               done.error().what + (done.error().hint.empty() ? "" : ": " + done.error().hint));
      std::fflush(stdout);
    }
    co_return Result<void>();
  }

  void summarize() const {
    std::printf("\n%s\n", paint_.bold("Summary").c_str());
    say(std::to_string(created_) + " sandboxes were created, " + format_duration(median(cold_)) +
        " each (median) until they answered; out of the pool " + format_duration(median(warm_)));
    say("guaranteed by this machine, for " +
        std::string(::geteuid() == 0 ? "root:" : "an ordinary user:"));
    for (const IsolationFact& fact : isolation_.facts) {
      std::string level = padded(to_string(fact.guarantee), 9);
      bool full = fact.guarantee == Guarantee::full;
      level = full                                   ? paint_.good(level)
              : fact.guarantee == Guarantee::partial ? paint_.fair(level)
                                                     : paint_.bad(level);
      std::printf("    %s%s%s\n", level.c_str(), padded(fact.name, 24).c_str(),
                  (full ? fact.mechanism : fact.note).c_str());
    }
  }

  // Something that must hold, in the words of what was seen.
  void expect(bool holds, const std::string& seen) {
    if (!holds) ++wrong_;
    std::printf("  %s %s\n", holds ? paint_.good("ok").c_str() : paint_.bad("NOT RIGHT").c_str(),
                seen.c_str());
  }
  int wrong() const { return wrong_; }

 private:
  void say(const std::string& text) const { std::printf("  %s\n", text.c_str()); }
  void show(const std::string& text) const {
    std::printf("  %s\n", paint_.dim("$ " + text).c_str());
  }

  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) {
    auto begin = Clock::now();
    auto creating = engine_.create_cold(std::move(spec));
    auto sandbox = CO_TRY(co_await std::move(creating));
    last_create_ = Clock::now() - begin;
    cold_.push_back(last_create_);
    ++created_;
    isolation_ = sandbox->isolation();
    co_return sandbox;
  }

  asio::awaitable<Result<RunResult>> run(std::shared_ptr<Sandbox> sandbox, Command command) {
    auto running = sandbox->run(std::move(command));
    co_return co_await std::move(running);
  }

  std::string times(const ExitStatus& status) const {
    return paint_.dim("(created in " + format_duration(last_create_) + ", ran for " +
                      format_duration(status.wall) + ")");
  }

  asio::awaitable<Result<void>> hello() {
    auto creating = create(spec_of(Preset::standard));
    auto sandbox = CO_TRY(co_await std::move(creating));
    auto looking = run(sandbox, command_of({"sh", "-c", "command -v python3"}));
    RunResult found = CO_TRY(co_await std::move(looking));
    has_python_ = found.status.ok();
    std::string python =
        "import os, platform; print('hello from Python', platform.python_version(), 'as', "
        "os.environ['USER'], 'on', platform.node())";
    std::string shell = "echo hello from sh as $USER";
    std::vector<std::string> argv = has_python_ ? std::vector<std::string>{"python3", "-c", python}
                                                : std::vector<std::string>{"sh", "-c", shell};
    show(argv[0] + " " + argv[1] + " \"" + argv[2] + "\"");
    auto greeting = run(sandbox, command_of(std::move(argv)));
    RunResult result = CO_TRY(co_await std::move(greeting));
    expect(result.status.ok() && result.out.starts_with("hello"),
           first_line(result.out) + " " + times(result.status));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> files() {
    std::string script =
        "echo secret > /workspace/note && echo evil >> /etc/passwd && rm /usr/bin/env && cat "
        "/workspace/note";
    show("(as " + strongest_ + " inside) " + script);
    {
      auto creating = create(spec_of(Preset::standard));
      auto sandbox = CO_TRY(co_await std::move(creating));
      // Rootless sandboxes cannot change files of the environment at all: those refusals are as
      // good.
      auto writing =
          run(sandbox,
              command_of({"sh", "-c", script + " 2>/dev/null || cat /workspace/note"}, strongest_));
      RunResult result = CO_TRY(co_await std::move(writing));
      expect(result.status.ok() && result.out == "secret\n",
             "it reads back what it wrote " + times(result.status));
      auto ending = sandbox->destroy();
      CO_TRY(co_await std::move(ending));
    }
    auto creating = create(spec_of(Preset::standard));
    auto sandbox = CO_TRY(co_await std::move(creating));
    std::string look =
        "test ! -e /workspace/note && test -x /usr/bin/env && ! grep -q evil /etc/passwd";
    auto looking = run(sandbox, command_of({"sh", "-c", look}));
    RunResult result = CO_TRY(co_await std::move(looking));
    expect(result.status.ok(),
           "the next sandbox finds everything as it was " + times(result.status));
    expect(std::filesystem::exists("/usr/bin/env"), "and so does this machine");
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> network() {
    auto creating = create(spec_of(Preset::strict));
    auto sandbox = CO_TRY(co_await std::move(creating));
    std::string python = "import socket; socket.create_connection(('192.0.2.1', 80), 2)";
    std::string bash = "exec 3<>/dev/tcp/192.0.2.1/80";
    std::vector<std::string> argv = has_python_ ? std::vector<std::string>{"python3", "-c", python}
                                                : std::vector<std::string>{"bash", "-c", bash};
    show(argv[0] + " -c \"" + argv[2] + "\"");
    auto connecting = run(sandbox, command_of(std::move(argv)));
    RunResult result = CO_TRY(co_await std::move(connecting));
    std::string last = result.err.substr(0, result.err.find_last_not_of('\n') + 1);
    last = last.substr(last.rfind('\n') + 1);
    bool unreachable = last.find("unreachable") != std::string::npos;
    expect(!result.status.ok() && unreachable,
           "refused: " + first_line(last) + " " + times(result.status));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> fork_bomb() {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.pids = 64;
    auto creating = create(spec);
    auto sandbox = CO_TRY(co_await std::move(creating));
    std::string bomb = "bomb() { bomb | bomb & }; bomb; exec sleep 1";
    show("sh -c '" + bomb + "'      with --pids 64");
    Command command = command_of({"sh", "-c", bomb});
    command.wall_time = 5s;
    command.overflow = OutputOverflow::truncate;
    auto bombing = run(sandbox, std::move(command));
    RunResult result = CO_TRY(co_await std::move(bombing));
    auto listing = sandbox->processes();
    auto alive = CO_TRY(co_await std::move(listing));
    // The guest itself, pid 1, is outside of the limit.
    bool told = result.err.find("fork") != std::string::npos;
    expect(told && alive.size() <= spec.limits.pids + 1,
           "told \"" + first_line(result.err) + "\"; " + std::to_string(alive.size()) +
               " processes a second later " + times(result.status));
    auto begin = Clock::now();
    auto ending = sandbox->destroy();
    CO_TRY(co_await std::move(ending));
    say("all of them ended in " + format_duration(Clock::now() - begin));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> memory_bomb() {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.memory_bytes = 64ULL << 20;
    spec.limits.disk_bytes = 16ULL << 20;
    auto creating = create(spec);
    auto sandbox = CO_TRY(co_await std::move(creating));
    show("tail /dev/zero      with --memory 64M");
    Command command = command_of({"tail", "/dev/zero"});
    command.wall_time = 30s;
    auto bombing = run(sandbox, std::move(command));
    RunResult result = CO_TRY(co_await std::move(bombing));
    expect(result.status.reason == EndReason::out_of_memory,
           "ended as " + std::string(to_string(result.status.reason)) + " " + times(result.status));
    auto asking = run(sandbox, command_of({"echo", "still here"}));
    RunResult after = CO_TRY(co_await std::move(asking));
    expect(after.status.ok(), "the sandbox itself lives on: " + first_line(after.out));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> endless_loop() {
    auto creating = create(spec_of(Preset::standard));
    auto sandbox = CO_TRY(co_await std::move(creating));
    show("sh -c 'while :; do :; done'      with --timeout 300ms");
    Command command = command_of({"sh", "-c", "while :; do :; done"});
    command.wall_time = 300ms;
    auto looping = run(sandbox, std::move(command));
    RunResult result = CO_TRY(co_await std::move(looping));
    expect(result.status.reason == EndReason::wall_time,
           "ended as " + std::string(to_string(result.status.reason)) + " " + times(result.status));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> refusals() {
    static const std::vector<std::string> kAttempts[] = {
        {"unshare", "--user", "true"},         {"mount", "-t", "tmpfs", "none", "/mnt"},
        {"mknod", "/tmp/disk", "b", "8", "0"}, {"sh", "-c", "echo b > /proc/sysrq-trigger"},
        {"head", "-c1", "/proc/kcore"},
    };
    auto creating = create(spec_of(Preset::standard));
    auto sandbox = CO_TRY(co_await std::move(creating));
    for (const std::vector<std::string>& attempt : kAttempts) {
      std::string text;
      for (const std::string& word : attempt) {
        bool many = word.find(' ') != std::string::npos;
        text += (text.empty() ? "" : " ") + (many ? "'" + word + "'" : word);
      }
      show("(as " + strongest_ + " inside) " + text);
      auto trying = run(sandbox, command_of(attempt, strongest_));
      RunResult result = CO_TRY(co_await std::move(trying));
      if (result.status.reason == EndReason::not_started)
        say("not installed here");
      else
        expect(!result.status.ok(),
               "refused: " + first_line(result.err) + " " + times(result.status));
    }
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> neighbours() {
    auto creating_one = create(spec_of(Preset::standard));
    auto one = CO_TRY(co_await std::move(creating_one));
    auto creating_other = create(spec_of(Preset::standard));
    auto other = CO_TRY(co_await std::move(creating_other));
    show("one: echo mine > /tmp/file; sleep 60 &      the other: ls -A /tmp; kill -9 -1");
    auto starting =
        run(one, command_of({"sh", "-c", "echo mine > /tmp/file; sleep 60 > /dev/null 2>&1 &"}));
    CO_TRY(co_await std::move(starting));
    auto attacking =
        run(other, command_of({"sh", "-c", "ls -A /tmp; kill -9 -1 2>/dev/null; true"}));
    RunResult seen = CO_TRY(co_await std::move(attacking));
    expect(seen.out.empty(), "the other sees no file of the first " + times(seen.status));
    auto listing = one->processes();
    auto alive = CO_TRY(co_await std::move(listing));
    expect(has_programs(alive), "and cannot reach its processes: sleep is still asleep");
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> pool() {
    constexpr std::uint32_t kSize = 4;
    SandboxSpec spec = spec_of(Preset::standard);
    auto warming = engine_.warm(spec, PoolOptions{.size = kSize, .refill_at_once = 1});
    CO_TRY(co_await std::move(warming));
    for (std::uint32_t i = 0; i < kSize; ++i) {
      auto begin = Clock::now();
      auto taking = engine_.create(spec);
      auto sandbox = CO_TRY(co_await std::move(taking));
      warm_.push_back(Clock::now() - begin);
      ++created_;
      // Let it refill: that work is not what is measured here.
      asio::steady_timer pause(co_await asio::this_coro::executor, 30ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    std::uint64_t served = 0;
    for (const PoolState& state : engine_.pools()) served += state.served_warm;
    expect(served == kSize, "handed out in " + format_duration(median(warm_)) + ", made in " +
                                format_duration(median(cold_)) + " (medians)");
    auto draining = engine_.drain(spec);
    co_return co_await std::move(draining);
  }

  Engine& engine_;
  Paint paint_;
  const std::string strongest_ = ::geteuid() == 0 ? "root" : "user";  // that a sandbox of ours has
  int step_ = 0;
  int wrong_ = 0;
  int created_ = 0;
  bool has_python_ = false;
  nanoseconds last_create_{0};
  std::vector<nanoseconds> cold_;
  std::vector<nanoseconds> warm_;
  Isolation isolation_;
};

// What is still there of an engine that has ended: folders, control groups, child processes.
std::vector<std::string> leftovers(const std::filesystem::path& instance) {
  std::vector<std::string> left;
  std::error_code ec;
  if (std::filesystem::exists(instance, ec)) left.push_back(instance.native());
  auto hierarchies = find_hierarchies();
  for (const Hierarchy& one : hierarchies.value_or(std::vector<Hierarchy>())) {
    std::filesystem::path group =
        std::filesystem::path(one.mount) / "agent-sandbox" / instance.filename();
    if (std::filesystem::exists(group, ec)) left.push_back(group.native());
  }
  if (::waitpid(-1, nullptr, WNOHANG) >= 0) left.emplace_back("a child process");
  return left;
}

int tour() {
  auto begin = Clock::now();
  std::printf(
      "A tour of agent-sandbox. Everything below really happens, in sandboxes of its own.\n");
  asio::io_context context;
  EngineOptions options;
  options.zygotes = 1;
  auto engine = Engine::start(context.get_executor(), options);
  if (!engine) return complain(engine.error());
  std::filesystem::path instance = (*engine)->instance_dir();

  Tour tour(**engine);
  (void)run_to_end(context, tour.walk());
  tour.summarize();
  auto stopped = run_to_end(context, (*engine)->stop());
  if (!stopped) tour.expect(false, stopped.error().what);
  engine->reset();
  std::vector<std::string> left = leftovers(instance);
  for (const std::string& one : left) tour.expect(false, "left behind: " + one);
  if (left.empty())
    tour.expect(true,
                "nothing is left of it: no process, no mount, no control group, no file; all in " +
                    format_duration(Clock::now() - begin));
  if (tour.wrong() == 0) return 0;
  std::printf("\n%d thing(s) did not behave: agent-sandbox doctor may tell why.\n", tour.wrong());
  return 1;
}

}  // namespace

void add_tour_command(CLI::App& app, Invocation& call) {
  CLI::App* command = app.add_subcommand("tour", "Show what it does, in a dozen real sandboxes");
  command->footer("Exit status: 0 if everything behaved as promised, 1 if something did not.");
  command->callback([&call] { call.status = tour(); });
}

}  // namespace asr
