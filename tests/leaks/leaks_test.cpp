// Many sandboxes, one after the other, used in every way: what is there afterwards is what was
// there before.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "os/nftables.hpp"
#include "snapshot.hpp"
#include "support/engine_fixture.hpp"
#include "support/small_internet.hpp"

namespace asr::test {
namespace {

using namespace std::chrono_literals;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ASR_SANITIZED 1
#endif
#endif
#ifdef ASR_SANITIZED
constexpr bool kMeasureMemory = false;  // A sanitizer keeps freed memory on purpose.
#else
constexpr bool kMeasureMemory = true;
#endif

int cycles_wanted() {
  const char* text = std::getenv("ASR_LEAK_CYCLES");
  return text != nullptr ? std::atoi(text) : 300;
}

class Cycles {
 public:
  explicit Cycles(TestEngine& engine) : engine_(engine) {}

  // One life of a sandbox, of the kind whose turn it is.
  void live(int turn) {
    static constexpr std::array kKinds{&Cycles::plain,   &Cycles::pooled,    &Cycles::refused,
                                       &Cycles::late,    &Cycles::files,     &Cycles::terminal,
                                       &Cycles::watched, &Cycles::connected, &Cycles::paused,
                                       &Cycles::dropped, &Cycles::busy,      &Cycles::flooded};
    (this->*kKinds[static_cast<std::size_t>(turn) % kKinds.size()])();
  }

 private:
  std::shared_ptr<Sandbox> cold() {
    return engine_.must(engine_->create_cold(spec_of(Preset::strict)));
  }
  void end(const std::shared_ptr<Sandbox>& sandbox) { engine_.must(sandbox->destroy()); }

  void plain() {
    auto sandbox = cold();
    EXPECT_TRUE(engine_.sh(*sandbox, "true").status.ok());
    end(sandbox);
  }

  void pooled() {
    auto sandbox = engine_.sandbox();
    EXPECT_EQ(engine_.sh(*sandbox, "echo $((6 * 7))").out, "42\n");
    end(sandbox);
  }

  void refused() {
    auto sandbox = cold();
    Command missing;
    missing.argv = {"/no/such/program"};
    EXPECT_EQ(engine_.must(sandbox->run(missing)).status.reason, EndReason::not_started);
    EXPECT_FALSE(engine_.wait(sandbox->run(shell("true", "stranger"))));
    EXPECT_FALSE(engine_.wait(sandbox->read_file("/no/such/file")));
    EXPECT_FALSE(engine_.wait(sandbox->read_file("relative")));
    end(sandbox);
  }

  void late() {
    auto sandbox = cold();
    Command command = shell("sleep 100 & sleep 100");
    command.wall_time = 20ms;
    EXPECT_EQ(engine_.must(sandbox->run(command)).status.reason, EndReason::wall_time);
    end(sandbox);
  }

  void files() {
    auto sandbox = cold();
    engine_.must(sandbox->make_directory("/workspace/a/b"));
    engine_.must(sandbox->write_file("/workspace/a/b/file", std::string(200'000, 'x')));
    EXPECT_EQ(engine_.must(sandbox->read_file("/workspace/a/b/file")).size(), 200'000U);
    EXPECT_EQ(engine_.must(sandbox->list("/workspace/a")).entries.size(), 1U);
    UniqueFd tar = engine_.must(sandbox->archive_out("/workspace"));
    engine_.must(sandbox->archive_in("/workspace", std::move(tar)));
    UniqueFd unread = engine_.must(sandbox->archive_out("/workspace"));
    engine_.must(sandbox->remove("/workspace/a"));
    end(sandbox);
  }

  void terminal() {
    auto sandbox = cold();
    Command command;
    command.argv = {"/bin/sh"};
    command.terminal = TerminalSize{};
    auto execution = engine_.must(sandbox->start(command));
    engine_.must(execution->resize({50, 100}));
    engine_.must(execution->write_stdin("exit 3\n"));
    while (engine_.must(execution->read())) {
    }
    EXPECT_EQ(engine_.must(execution->wait()).exit_code, 3);
    end(sandbox);
  }

  void watched() {
    auto sandbox = cold();
    auto watch = engine_.must(sandbox->watch("/workspace"));
    engine_.must(sandbox->write_file("/workspace/new", "x"));
    EXPECT_FALSE(engine_.must(watch->next()).empty());
    watch.reset();
    auto forgotten = engine_.must(sandbox->watch("/workspace"));
    end(sandbox);
  }

  void connected() {
    auto sandbox = engine_.sandbox();
    EXPECT_FALSE(engine_.wait(sandbox->connect(9)));
    Command server;
    server.argv = {"/usr/bin/perl", "-e",
                   "use Socket; socket(S,PF_INET,SOCK_STREAM,0); "
                   "bind(S,sockaddr_in(8000,INADDR_LOOPBACK)); listen(S,1);"
                   "$|=1; print qq(ready\\n); accept(C,S); syswrite(C,'hi'); sleep 100"};
    auto execution = engine_.must(sandbox->start(server));
    auto ready = engine_.must(execution->read());
    if (ready) {
      UniqueFd connection = engine_.must(sandbox->connect(8000));
      std::array<char, 8> buffer{};
      pollfd readable{connection.get(), POLLIN, 0};
      EXPECT_EQ(::poll(&readable, 1, 5000), 1);
      EXPECT_EQ(::read(connection.get(), buffer.data(), buffer.size()), 2);
    }
    end(sandbox);
  }

  void paused() {
    auto sandbox = cold();
    auto execution = engine_.must(sandbox->start(shell("while :; do :; done")));
    if (auto frozen = engine_.wait(sandbox->pause()); !frozen)
      EXPECT_EQ(frozen.error().code, Errc::unsupported);
    end(sandbox);
  }

  void dropped() {
    auto sandbox = cold();
    auto background = engine_.must(sandbox->start(shell("sleep 100")));
    background.reset();
    sandbox.reset();
  }

  void busy() {
    auto sandbox = cold();
    auto execution = engine_.must(sandbox->start(shell("sleep 100 & sleep 100 & wait")));
    end(sandbox);
    EXPECT_EQ(engine_.must(execution->wait()).reason, EndReason::sandbox_gone);
  }

  void flooded() {
    auto sandbox = cold();
    Command command = shell("yes");
    command.output_bytes = 100'000;
    EXPECT_EQ(engine_.must(sandbox->run(command)).status.reason, EndReason::output_limit);
    end(sandbox);
  }

  TestEngine& engine_;
};

// What the machine's other tenants do shows in counts of the whole machine, hence their tolerance.
const Counts kTolerances{{"dying memory cgroups", 100}, {"network namespaces of the machine", 100}};

class Leaks : public testing::Test {
 protected:
  Leaks() {
    if (::geteuid() != 0) return;
    options_.runtime_dir = scratch_.path() / "run";
    options_.cache_dir = scratch_.path() / "cache";
    options_.zygotes = 2;
    scope_ = {options_.runtime_dir, options_.cache_dir, {}};
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: what is counted is hidden from others";
  }
  Counts now() { return count_all(scope_); }
  // After an engine has ended: as it was before there was one.
  void expect_as(const Counts& outside) {
    Counts tolerances = kTolerances;
    tolerances["resident KiB"] = 1 << 30;
    tolerances["descriptors"] = 2;  // What the C++ runtime opened on first use.
    EXPECT_EQ(settle(
                  outside, [this] { return now(); }, tolerances, 10s),
              "");
  }

  ScratchDir scratch_;
  EngineOptions options_;
  Scope scope_;
};

TEST_F(Leaks, CyclesLeaveNothingBehind) {
  const int wanted = cycles_wanted();
  Counts outside = now();
  {
    TestEngine engine(options_);
    scope_.instances.insert(engine->instance_dir().filename().native());
    Cycles cycles(engine);
    SandboxSpec pooled = spec_of(Preset::standard);
    engine.must(engine->warm(pooled, {4, 2}));
    for (int i = 0; i < 48; ++i) cycles.live(i);
    std::this_thread::sleep_for(500ms);  // The pool fills up again.
    Counts before = now();

    auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < wanted; ++i) cycles.live(i);
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;

    Counts tolerances = kTolerances;
    tolerances["cgroups"] = 64;  // 16 are kept in each of up to four hierarchies, to be used again.
    tolerances["resident KiB"] = kMeasureMemory ? before["resident KiB"] / 10 : 1 << 30;
    EXPECT_EQ(settle(
                  before, [&] { return now(); }, tolerances, 10s),
              "");
    std::cout << wanted << " cycles in " << took.count() << " s\n";
    for (const auto& [name, count] : now())
      std::cout << "  " << name << ": " << before[name] << " -> " << count << "\n";
    engine.stop();
  }
  expect_as(outside);
}

// Stopping in the middle of everything: a pool that refills, programs that run, watches, pauses.
TEST_F(Leaks, StoppingAtOnceLeavesNothingBehind) {
  Counts outside = now();
  for (int i = 0; i < 5; ++i) {
    TestEngine engine(options_);
    scope_.instances.insert(engine->instance_dir().filename().native());
    engine.must(engine->warm(spec_of(Preset::standard), {3, 2}));
    auto one = engine.sandbox();
    auto two = engine.sandbox();
    auto execution = engine.must(one->start(shell("sleep 100")));
    auto watch = engine.must(two->watch("/workspace"));
    auto three = engine.sandbox();
    (void)engine.wait(three->pause());
    engine.stop();
  }
  expect_as(outside);
}

// Those who refill a pool work for an engine that is about to be gone.
TEST_F(Leaks, StoppingWhileAPoolRefillsLeavesNothingBehind) {
  Counts outside = now();
  for (int i = 0; i < 10; ++i) {
    TestEngine engine(options_);
    scope_.instances.insert(engine->instance_dir().filename().native());
    engine.must(engine->warm(spec_of(Preset::strict), {8, 8}));
    for (int taken = 0; taken < 8; ++taken) {
      auto sandbox = engine.must(engine->create(spec_of(Preset::strict)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    engine.stop();
  }
  expect_as(outside);
}

TEST_F(Leaks, SandboxesWithANetworkLeaveNothingBehind) {
  SmallInternet internet;
  auto links = [&] { return internet.routes().links()->size(); };
  std::size_t links_before = links();
  options_.full_network = FullNetworkOptions{};
  SandboxSpec spec = spec_of(Preset::standard);
  spec.network = Network::full;
  Counts outside = now();
  {
    TestEngine engine(options_);
    scope_.instances.insert(engine->instance_dir().filename().native());
    auto live = [&] {
      auto sandbox = engine.sandbox(spec);
      EXPECT_TRUE(engine.sh(*sandbox, "cat /proc/net/route").status.ok());
      engine.must(sandbox->destroy());
    };
    for (int i = 0; i < 20; ++i) live();
    std::this_thread::sleep_for(500ms);
    Counts before = now();
    for (int i = 0; i < 200; ++i) live();
    Counts tolerances = kTolerances;
    tolerances["cgroups"] = 64;
    tolerances["resident KiB"] = kMeasureMemory ? before["resident KiB"] / 10 : 1 << 30;
    EXPECT_EQ(settle(
                  before, [&] { return now(); }, tolerances, 10s),
              "");
    engine.stop();
  }
  EXPECT_EQ(links(), links_before);
  EXPECT_EQ(*run_nft("list tables"), "");
  expect_as(outside);
}

}  // namespace
}  // namespace asr::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  asr::test::mark_descendants();
  return RUN_ALL_TESTS();
}
