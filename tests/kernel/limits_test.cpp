// What a sandbox may use, and how its programs end when they want more. Needs nothing of the
// machine but /bin/sh, so that it runs wherever the engine does; limits of time leave room for a
// machine that is emulated.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;

class LimitsTest : public KernelTest {
 protected:
  static SandboxSpec spec(const std::function<void(Limits&)>& change) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.milli_cpus = 0;  // Or everything below waits for its share.
    change(spec.limits);
    return spec;
  }
  static SandboxSpec spec() {
    return spec([](Limits&) {});
  }
  static Command limited(Command command, std::chrono::milliseconds wall_time) {
    command.wall_time = wall_time;
    return command;
  }
  // The number after `word` in what the tool reported.
  static long reported(const std::string& text, const std::string& word) {
    std::size_t at = text.find(word + " ");
    return at == std::string::npos ? -1
                                   : std::strtol(text.c_str() + at + word.size() + 1, nullptr, 10);
  }
  bool holds(const Sandbox& box, std::string_view fact) {
    return box.isolation().find(fact) != nullptr &&
           box.isolation().find(fact)->guarantee == Guarantee::full;
  }
};

// ---- memory
// --------------------------------------------------------------------------------------

SandboxSpec small_memory() {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.milli_cpus = 0;
  spec.limits.memory_bytes = 64 << 20;
  spec.limits.disk_bytes = 16 << 20;
  return spec;
}

TEST_F(LimitsTest, MemoryBelowTheLimitIsFine) {
  auto box = sandbox_with_tool(small_memory());
  auto execution = start(*box, tool({"eat", "30"}));
  EXPECT_EQ(read_until(*execution, "ate"), "ate\n");
  must(execution->signal(SIGTERM));
  ExitStatus status = must(execution->wait());
  EXPECT_EQ(status.reason, EndReason::signaled);
  EXPECT_EQ(status.oom_kills, 0U);
  EXPECT_GE(status.max_rss_bytes, 30U << 20);
}

TEST_F(LimitsTest, MemoryOverTheLimitIsOutOfMemory) {
  auto box = sandbox_with_tool(small_memory());
  ExitStatus status = must(box->run(tool({"eat", "200"}))).status;
  EXPECT_EQ(status.reason, EndReason::out_of_memory);
  EXPECT_EQ(status.exit_code, 137);
  EXPECT_EQ(status.signal, SIGKILL);
  if (holds(*box, "memory_limit")) {
    EXPECT_GE(status.oom_kills, 1U);
    Usage usage = must(box->usage());
    EXPECT_GE(usage.oom_kills, 1U);
    EXPECT_LE(usage.memory_peak_bytes, 64U << 20);
    EXPECT_GE(usage.memory_peak_bytes, 48U << 20);
    EXPECT_LE(usage.memory_bytes, 32U << 20);
  }
  EXPECT_EQ(sh(*box, "echo usable").out, "usable\n");
}

// A killed child is its parent's to deal with; the execution says that there was one.
TEST_F(LimitsTest, MemoryOfAChildIsItsParentsAffair) {
  auto box = sandbox_with_tool(small_memory());
  RunResult result = sh(*box, "/workspace/tool eat 200 2>/dev/null; echo after $?");
  EXPECT_THAT(result.out, HasSubstr("after 137"));
  EXPECT_EQ(result.status.reason, EndReason::exited);
  EXPECT_EQ(result.status.exit_code, 0);
  if (holds(*box, "memory_limit")) EXPECT_EQ(result.status.oom_kills, 1U);
}

TEST_F(LimitsTest, MemoryOfManyCountsTogether) {
  auto box = sandbox_with_tool(small_memory());
  std::vector<ExecutionPtr> executions;
  for (int i = 0; i < 4; ++i) executions.push_back(start(*box, tool({"eat", "25"})));
  // Four times 25 do not fit into 64: somebody has to go, and only as many as must.
  auto ended = [&] {
    std::size_t living = 0;
    for (const ProcessInfo& process : must(box->processes()))
      if (process.argv.size() > 1 && process.argv[1] == "eat") ++living;
    return living <= 2;
  };
  EXPECT_TRUE(eventually(ended, 20s));
  EXPECT_EQ(must(box->run(shell("echo usable"))).out, "usable\n");
  must(box->kill_all());
}

TEST_F(LimitsTest, MemoryTroubleStaysWithItsOwner) {
  auto box = sandbox_with_tool(small_memory());
  auto neighbour = sandbox_with_tool(small_memory());
  auto execution = start(*neighbour, tool({"eat", "30"}));
  read_until(*execution, "ate");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(must(box->run(tool({"eat", "200"}))).status.reason, EndReason::out_of_memory);
  EXPECT_EQ(must(neighbour->usage()).oom_kills, 0U);
  EXPECT_EQ(must(neighbour->processes()).size(), 1U);
}

// The disk is memory: full, it must leave room for programs.
TEST_F(LimitsTest, MemoryAndDiskLeaveRoomForEachOther) {
  auto box = sandbox_with_tool(spec([](Limits& limits) {
    limits.memory_bytes = 64 << 20;
    limits.disk_bytes = 32 << 20;
  }));
  EXPECT_THAT(must(box->run(tool({"fill", "/workspace/full"}))).out, HasSubstr("No space left"));
  auto execution = start(*box, tool({"eat", "20"}));
  EXPECT_EQ(read_until(*execution, "ate"), "ate\n");
  EXPECT_EQ(must(box->run(tool({"eat", "60"}))).status.reason, EndReason::out_of_memory);
  must(box->kill_all());
}

// ---- cpu
// -----------------------------------------------------------------------------------------

TEST_F(LimitsTest, CpuQuotaHolds) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.milli_cpus = 200; }));
  if (!holds(*box, "cpu_limit")) GTEST_SKIP() << "no cpu limit on this machine";
  auto before = must(box->usage()).cpu;
  auto started = Clock::now();
  // Two at once: the quota is of the sandbox, not of a process.
  std::vector<ExecutionPtr> executions;
  for (int i = 0; i < 2; ++i) executions.push_back(start(*box, tool({"burn", "0"})));
  std::this_thread::sleep_for(3s);
  auto used = must(box->usage()).cpu - before;
  auto wall = std::chrono::duration<double>(Clock::now() - started);
  must(box->kill_all());
  double share = std::chrono::duration<double>(used) / wall;
  EXPECT_GE(share, 0.1);
  EXPECT_LE(share, 0.3);
}

TEST_F(LimitsTest, CpuWithoutAQuotaIsAllOfIt) {
  auto box = sandbox_with_tool(spec());
  auto started = Clock::now();
  ExitStatus status = must(box->run(tool({"burn", "500"}))).status;
  EXPECT_TRUE(status.ok());
  EXPECT_LT(since(started), 8s);
}

// ---- processes
// -----------------------------------------------------------------------------------

TEST_F(LimitsTest, ProcessesAreLimited) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.pids = 32; }));
  auto execution = start(*box, tool({"forks"}));
  std::string text = read_until(*execution, "errno");
  EXPECT_THAT(text, HasSubstr("Resource temporarily unavailable"));
  EXPECT_GE(reported(text, "forked"), 28);
  EXPECT_LE(reported(text, "forked"), 32);
  must(box->kill_all());
  EXPECT_EQ(sh(*box, "echo usable").out, "usable\n");
}

// Full, it can still be looked at and given orders.
TEST_F(LimitsTest, ProcessesAtTheLimitLeaveAWayIn) {
  for (const char* kind : {"forks", "bomb"}) {
    auto box = sandbox_with_tool(spec([](Limits& limits) { limits.pids = 32; }));
    auto execution = start(*box, tool({kind}));
    read_until(*execution, kind == std::string("forks") ? "forked" : "armed");
    std::this_thread::sleep_for(500ms);
    auto processes = wait(box->processes());
    ASSERT_TRUE(succeeded(processes)) << kind;
    EXPECT_GE(processes->size(), 20U) << kind;
    EXPECT_LE(processes->size(), 48U) << kind;
    auto result = wait(box->run([] {
      Command command;
      command.argv = {"/bin/echo", "started"};
      return command;
    }()));
    ASSERT_TRUE(succeeded(result)) << kind;
    EXPECT_EQ(result->out, "started\n") << kind;
    EXPECT_TRUE(succeeded(wait(box->write_file("/workspace/f", "x")))) << kind;
    EXPECT_TRUE(succeeded(wait(box->list("/workspace")))) << kind;
    EXPECT_TRUE(succeeded(wait(box->usage()))) << kind;
    must(box->kill_all());
    EXPECT_TRUE(eventually([&] {
      (void)wait(box->kill_all());
      return must(box->processes()).empty();
    })) << kind;
    EXPECT_EQ(sh(*box, "echo usable").out, "usable\n") << kind;
  }
}

TEST_F(LimitsTest, ProcessesOfOneAreNotTakenFromAnother) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.pids = 32; }));
  auto neighbour = sandbox_with_tool(spec([](Limits& limits) { limits.pids = 32; }));
  auto first = start(*box, tool({"forks"}));
  read_until(*first, "errno");
  auto second = start(*neighbour, tool({"forks"}));
  EXPECT_GE(reported(read_until(*second, "errno"), "forked"), 28);
}

// ---- disk and files
// ------------------------------------------------------------------------------

TEST_F(LimitsTest, DiskIsLimited) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.disk_bytes = 32 << 20; }));
  std::string text = must(box->run(tool({"fill", "/workspace/full"}))).out;
  EXPECT_THAT(text, HasSubstr("No space left"));
  EXPECT_GE(reported(text, "filled"), 20);
  EXPECT_LE(reported(text, "filled"), 32);
  // Nowhere else is any left either.
  for (const char* path : {"/tmp/more", "/dev/shm/more", "/home/user/more"}) {
    std::string more = must(box->run(tool({"fill", path}))).out;
    EXPECT_EQ(reported(more, "filled"), 0) << path << more;
  }
  EXPECT_EQ(sh(*box, "echo runs").out, "runs\n");
  Usage usage = must(box->usage());
  EXPECT_EQ(usage.disk_limit_bytes, 32U << 20);
  EXPECT_GE(usage.disk_bytes, 31U << 20);
  EXPECT_LE(usage.disk_bytes, 32U << 20);
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/x", std::string(1 << 20, 'x'))),
                          Errc::exhausted));
  must(box->remove("/workspace/full"));
  must(box->write_file("/workspace/x", std::string(1 << 20, 'x')));
}

TEST_F(LimitsTest, DiskLimitReachesTheReadOnlyRoot) {
  SandboxSpec strict = spec_of(Preset::strict);
  strict.limits.milli_cpus = 0;
  strict.limits.wall_time = 0ms;
  strict.limits.disk_bytes = 16 << 20;
  auto box = sandbox_with_tool(strict);
  EXPECT_LE(reported(must(box->run(tool({"fill", "/tmp/full"}))).out, "filled"), 16);
  EXPECT_EQ(reported(must(box->run(tool({"fill", "/workspace/more"}))).out, "filled"), 0);
  EXPECT_EQ(sh(*box, "echo runs").out, "runs\n");
}

TEST_F(LimitsTest, InodesAreLimited) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.inodes = 500; }));
  must(box->make_directory("/workspace/many"));
  std::string text = must(box->run(tool({"inodes", "/workspace/many"}))).out;
  EXPECT_THAT(text, HasSubstr("No space left"));
  EXPECT_GE(reported(text, "created"), 300);
  EXPECT_LT(reported(text, "created"), 500);
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/x", "")), Errc::exhausted));
  EXPECT_EQ(sh(*box, "echo runs").out, "runs\n");
  EXPECT_GE(must(box->usage()).inodes, 480U);
  must(box->remove("/workspace/many"));
  must(box->write_file("/workspace/x", ""));
}

TEST_F(LimitsTest, OpenFilesAreLimited) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.open_files = 64; }));
  std::string text = must(box->run(tool({"files"}))).out;
  EXPECT_EQ(reported(text, "opened"), 61) << text;
  EXPECT_THAT(text, HasSubstr("Too many open files"));
  EXPECT_EQ(sh(*box, "ulimit -n; ulimit -Hn").out, "64\n64\n");
}

// ---- time
// ----------------------------------------------------------------------------------------

TEST_F(LimitsTest, WallTimeEndsAProgram) {
  auto box = sandbox(spec([](Limits& limits) { limits.wall_time = 500ms; }));
  auto started = Clock::now();
  RunResult result = sh(*box, "echo before; sleep 100");
  EXPECT_EQ(result.status.reason, EndReason::wall_time);
  EXPECT_EQ(result.status.exit_code, 137);
  EXPECT_EQ(result.out, "before\n");
  EXPECT_GE(result.status.wall, 500ms);
  EXPECT_LT(since(started), 5s);
  EXPECT_EQ(sh(*box, "echo usable").out, "usable\n");
}

TEST_F(LimitsTest, WallTimeOfTheCommandWins) {
  auto box = sandbox(spec([](Limits& limits) { limits.wall_time = 300ms; }));
  EXPECT_TRUE(must(box->run(limited(shell("sleep 1"), 0ms))).status.ok());
  EXPECT_TRUE(must(box->run(limited(shell("sleep 1"), 30s))).status.ok());
  auto quick = sandbox(spec());
  EXPECT_EQ(must(quick->run(limited(shell("sleep 100"), 300ms))).status.reason,
            EndReason::wall_time);
}

TEST_F(LimitsTest, WallTimeEndsTheWholeTree) {
  auto box = sandbox_with_tool(spec());
  EXPECT_EQ(must(box->run(limited(tool({"tree"}), 500ms))).status.reason, EndReason::wall_time);
  EXPECT_TRUE(eventually([&] { return must(box->processes()).empty(); }))
      << must(box->processes()).size();
}

TEST_F(LimitsTest, WallTimeCannotBeIgnored) {
  auto box = sandbox(spec());
  EXPECT_EQ(
      must(box->run(limited(shell("trap '' TERM INT XCPU HUP; while :; do sleep 1; done"), 500ms)))
          .status.reason,
      EndReason::wall_time);
}

TEST_F(LimitsTest, CpuTimeEndsAProgram) {
  auto box = sandbox_with_tool(spec());
  Command command = tool({"burn", "0"});
  command.cpu_time = 500ms;
  auto started = Clock::now();
  ExitStatus status = must(box->run(command)).status;
  EXPECT_EQ(status.reason, EndReason::cpu_time);
  EXPECT_GE(status.cpu_user + status.cpu_system, 450ms);
  EXPECT_LE(status.cpu_user + status.cpu_system, 2s);
  EXPECT_LT(since(started), 20s);
  // Sleeping uses none of it.
  Command sleeping = shell("sleep 1");
  sleeping.cpu_time = 500ms;
  EXPECT_TRUE(must(box->run(sleeping)).status.ok());
}

// Children that end are counted, so that many short ones are not free.
TEST_F(LimitsTest, CpuTimeOfChildrenCounts) {
  auto box = sandbox_with_tool(spec());
  Command one_by_one = tool({"burners", "0", "40"});
  one_by_one.cpu_time = 600ms;
  one_by_one.wall_time = 30s;
  EXPECT_EQ(must(box->run(one_by_one)).status.reason, EndReason::cpu_time);
  Command at_once = shell("/workspace/tool burn 0 & /workspace/tool burn 0 & wait");
  at_once.cpu_time = 600ms;
  at_once.wall_time = 30s;
  EXPECT_EQ(must(box->run(at_once)).status.reason, EndReason::cpu_time);
  EXPECT_TRUE(eventually([&] { return must(box->processes()).empty(); }));
}

TEST_F(LimitsTest, CpuTimeCannotBeIgnored) {
  auto box = sandbox_with_tool(spec());
  Command command = shell("trap '' XCPU; exec /workspace/tool burn 0");
  command.cpu_time = 300ms;
  command.wall_time = 30s;
  EXPECT_EQ(must(box->run(command)).status.reason, EndReason::cpu_time);
}

// ---- output
// --------------------------------------------------------------------------------------

TEST_F(LimitsTest, OutputOverTheLimitEndsAProgram) {
  auto box = sandbox_with_tool(spec());
  Command command = tool({"flood"});
  command.output_bytes = 100'000;
  RunResult result = must(box->run(command));
  EXPECT_EQ(result.status.reason, EndReason::output_limit);
  EXPECT_EQ(result.out, std::string(100'000, 'y'));
  EXPECT_GT(result.status.truncated_bytes, 0U);
  EXPECT_EQ(sh(*box, "echo usable").out, "usable\n");
}

TEST_F(LimitsTest, OutputCanBeTruncatedInstead) {
  auto box = sandbox(spec());
  Command command = shell("head -c 1000000 /dev/zero; head -c 500000 /dev/zero >&2; exit 7");
  command.output_bytes = 100'000;
  command.overflow = OutputOverflow::truncate;
  RunResult result = must(box->run(command));
  EXPECT_EQ(result.status.reason, EndReason::exited);
  EXPECT_EQ(result.status.exit_code, 7);
  EXPECT_EQ(result.out.size() + result.err.size(), 100'000U);
  EXPECT_EQ(result.status.truncated_bytes, 1'400'000U);
}

TEST_F(LimitsTest, OutputOfExactlyTheLimitIsFine) {
  auto box = sandbox(spec());
  for (OutputOverflow overflow : {OutputOverflow::kill, OutputOverflow::truncate}) {
    Command command = shell("head -c 60000 /dev/zero; head -c 40000 /dev/zero >&2");
    command.output_bytes = 100'000;
    command.overflow = overflow;
    RunResult result = must(box->run(command));
    EXPECT_TRUE(result.status.ok());
    EXPECT_EQ(result.status.truncated_bytes, 0U);
    EXPECT_EQ(result.out.size() + result.err.size(), 100'000U);
  }
}

// A program that went over the limit and ended by itself before it could be killed did not end
// well.
TEST_F(LimitsTest, OutputOverTheLimitOfAQuickProgram) {
  auto box = sandbox(spec());
  for (int i = 0; i < 10; ++i) {
    Command command = shell("head -c 50000 /dev/zero");
    command.output_bytes = 1000;
    RunResult result = must(box->run(command));
    EXPECT_EQ(result.out.size(), 1000U);
    EXPECT_GT(result.status.truncated_bytes, 0U);
    EXPECT_EQ(result.status.reason, EndReason::output_limit) << to_string(result.status.reason);
  }
}

// ---- usage and isolation
// -------------------------------------------------------------------------

TEST_F(LimitsTest, UsageIsPlausible) {
  auto box = sandbox_with_tool(spec());
  Usage before = must(box->usage());
  must(box->write_file("/workspace/five", std::string(5 << 20, 'x')));
  must(box->run(tool({"burn", "300"})));
  auto execution = start(*box, tool({"eat", "50"}));
  read_until(*execution, "ate");
  Usage usage = must(box->usage());
  EXPECT_GE(usage.disk_bytes, before.disk_bytes + (5U << 20));
  EXPECT_LE(usage.disk_bytes, before.disk_bytes + (6U << 20));
  EXPECT_GT(usage.inodes, before.inodes);
  EXPECT_EQ(usage.disk_limit_bytes, box->spec().limits.disk_bytes);
  if (holds(*box, "memory_limit")) {
    EXPECT_GE(usage.memory_bytes, 50U << 20);
    EXPECT_LE(usage.memory_bytes, 100U << 20);
    EXPECT_GE(usage.memory_peak_bytes, usage.memory_bytes);
    EXPECT_EQ(usage.oom_kills, 0U);
  }
  if (holds(*box, "pids_limit") && usage.pids != 0) {
    // Pid 1, the eater, and for a moment one that has ended: it counts until it is forgotten.
    EXPECT_GE(usage.pids, 2U);
    EXPECT_LE(usage.pids, 5U);
  }
  if (holds(*box, "pause")) {  // The tree that pauses is the one that counts.
    EXPECT_GE(usage.cpu - before.cpu, 280ms);
    EXPECT_LE(usage.cpu - before.cpu, 5s);
  }
}

TEST_F(LimitsTest, IsolationNamesWhatHolds) {
  auto box = sandbox(spec());
  for (const char* name : {"namespaces", "uid_range", "kernel_quotas", "nested_user_namespaces",
                           "system_calls", "landlock", "file_owners", "disk_limit", "network",
                           "memory_limit", "cpu_limit", "pids_limit", "pause", "side_channels"})
    EXPECT_NE(box->isolation().find(name), nullptr) << name;
  EXPECT_EQ(box->isolation().find("nothing of the kind"), nullptr);
  for (const IsolationFact& fact : box->isolation().facts) {
    if (fact.guarantee == Guarantee::full) {
      EXPECT_NE(fact.mechanism, "") << fact.name;
      EXPECT_EQ(fact.note, "") << fact.name;
    } else {
      EXPECT_NE(fact.note, "") << fact.name;
    }
  }
  if (::geteuid() == 0) {
    for (const char* name : {"memory_limit", "cpu_limit", "pids_limit", "pause", "uid_range"})
      EXPECT_EQ(box->isolation().find(name)->guarantee, Guarantee::full) << name;
    EXPECT_THAT(box->isolation().find("memory_limit")->mechanism, HasSubstr("cgroup v"));
  }
}

class WithoutCgroups : public LimitsTest {
 protected:
  void SetUp() override { options().cgroups = EngineOptions::Cgroups::off; }
};

TEST_F(WithoutCgroups, IsolationNamesWhatDoesNotHold) {
  auto box = sandbox(spec());
  EXPECT_EQ(box->isolation().find("memory_limit")->guarantee, Guarantee::partial);
  EXPECT_EQ(box->isolation().find("cpu_limit")->guarantee, Guarantee::none);
  EXPECT_EQ(box->isolation().find("pids_limit")->guarantee, Guarantee::full);
  EXPECT_EQ(box->isolation().find("pause")->guarantee, Guarantee::none);
  EXPECT_TRUE(failed_with(wait(box->pause()), Errc::unsupported));
  EXPECT_EQ(box->state(), SandboxState::ready);
  EXPECT_EQ(sh(*box, "echo runs").out, "runs\n");
}

TEST_F(WithoutCgroups, MemoryIsWatched) {
  auto box = sandbox_with_tool(small_memory());
  ExitStatus status = must(box->run(tool({"eat", "1000"}))).status;
  EXPECT_EQ(status.reason, EndReason::out_of_memory);
  EXPECT_EQ(sh(*box, "echo usable").out, "usable\n");
  auto execution = start(*box, tool({"eat", "30"}));
  EXPECT_EQ(read_until(*execution, "ate"), "ate\n");
}

TEST_F(WithoutCgroups, ProcessesAreLimited) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.pids = 32; }));
  auto execution = start(*box, tool({"forks"}));
  std::string text = read_until(*execution, "errno");
  EXPECT_GE(reported(text, "forked"), 28) << text;
  EXPECT_LE(reported(text, "forked"), 32) << text;
  EXPECT_GE(must(box->processes()).size(), 28U);
}

TEST_F(WithoutCgroups, EverythingElseHolds) {
  auto box = sandbox_with_tool(spec([](Limits& limits) { limits.disk_bytes = 16 << 20; }));
  EXPECT_THAT(must(box->run(tool({"fill", "/workspace/full"}))).out, HasSubstr("No space left"));
  EXPECT_EQ(must(box->run(limited(shell("sleep 100"), 300ms))).status.reason, EndReason::wall_time);
  Usage usage = must(box->usage());
  EXPECT_GT(usage.disk_bytes, 0U);
  must(box->destroy());
}

// ---- pausing
// -------------------------------------------------------------------------------------

class Pausing : public LimitsTest {
 protected:
  void SetUp() override {
    box_ = sandbox_with_tool(spec());
    if (!holds(*box_, "pause")) GTEST_SKIP() << "no sandbox can be paused on this machine";
  }
  static unsigned long count_in(const UniqueFd& file) {
    char text[21] = {};
    return ::pread(file.get(), text, 20, 0) == 20 ? std::strtoul(text, nullptr, 10) : 0;
  }
  SandboxPtr box_;
};

TEST_F(Pausing, StopsTimeInside) {
  auto execution = start(*box_, tool({"tick", "/workspace/count"}));
  read_until(*execution, "ticking");
  UniqueFd file = must(box_->open_read("/workspace/count"));
  unsigned long moving = count_in(file);
  EXPECT_TRUE(eventually([&] { return count_in(file) > moving; }));
  for (int round = 0; round < 3; ++round) {
    must(box_->pause());
    EXPECT_EQ(box_->state(), SandboxState::paused);
    unsigned long frozen = count_in(file);
    std::this_thread::sleep_for(300ms);
    EXPECT_EQ(count_in(file), frozen) << "it went on after pause() had returned";
    must(box_->resume());
    EXPECT_EQ(box_->state(), SandboxState::ready);
    EXPECT_TRUE(eventually([&] { return count_in(file) > frozen; }));
  }
}

TEST_F(Pausing, OperationsAreAConflictMeanwhile) {
  must(box_->pause());
  EXPECT_TRUE(failed_with(wait(box_->run(shell("true"))), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->start(shell("true"))), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->processes()), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->kill_all()), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->signal_process(2, SIGTERM)), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->read_file("/etc/passwd")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->write_file("/workspace/x", "")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->list("/")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->watch("/workspace")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->archive_out("/workspace")), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->connect(80)), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->ping()), Errc::conflict));
  EXPECT_TRUE(failed_with(wait(box_->pause()), Errc::conflict));
  EXPECT_TRUE(succeeded(wait(box_->usage())));
  must(box_->resume());
  EXPECT_TRUE(failed_with(wait(box_->resume()), Errc::conflict));
  EXPECT_EQ(sh(*box_, "echo again").out, "again\n");
}

// An execution that began before is not asked through the sandbox, but must not hang its caller
// either.
TEST_F(Pausing, SignalToARunningProgramIsAConflict) {
  auto execution = start(*box_, shell("sleep 100"));
  must(box_->pause());
  auto signalling = begin(execution->signal(SIGTERM));
  EXPECT_EQ(signalling.wait_for(5s), std::future_status::ready)
      << "a signal to a paused sandbox holds the caller";
  must(box_->resume());
  (void)signalling.get();
}

TEST_F(Pausing, ProgramsGoOnWhereTheyWere) {
  auto execution =
      start(*box_, shell("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.05; done; exit 3"));
  read_until(*execution, "2\n");
  must(box_->pause());
  std::this_thread::sleep_for(300ms);
  must(box_->resume());
  EXPECT_THAT(read_to_end(*execution), HasSubstr("9\n10\n"));
  EXPECT_EQ(must(execution->wait()).exit_code, 3);
}

// Longer than the program's time and the engine's patience beyond it together.
TEST_F(Pausing, TimeOfProgramsStandsStill) {
  Command command = shell("sleep 2; echo done");
  command.wall_time = 3s;
  auto execution = start(*box_, command);
  std::this_thread::sleep_for(500ms);
  must(box_->pause());
  std::this_thread::sleep_for(8500ms);
  must(box_->resume());
  EXPECT_EQ(read_to_end(*execution), "done\n");
  EXPECT_TRUE(must(execution->wait()).ok());
}

TEST_F(Pausing, TimeOfProgramsGoesOnAfterwards) {
  Command command = shell("sleep 60");
  command.wall_time = 1s;
  auto execution = start(*box_, command);
  must(box_->pause());
  std::this_thread::sleep_for(1500ms);
  must(box_->resume());
  EXPECT_EQ(must(execution->wait()).reason, EndReason::wall_time);
}

TEST_F(Pausing, PausedSandboxCanBeDestroyed) {
  auto execution = start(*box_, tool({"burn", "0"}));
  must(box_->pause());
  int pid = box_->host_pid();
  auto started = Clock::now();
  must(box_->destroy());
  EXPECT_LT(since(started), 5s);
  EXPECT_FALSE(process_lives(pid));
  EXPECT_EQ(must(execution->wait()).reason, EndReason::sandbox_gone);
}

TEST_F(Pausing, PausedSandboxCanBeDropped) {
  must(box_->pause());
  int pid = box_->host_pid();
  box_.reset();
  EXPECT_TRUE(eventually([&] { return !process_lives(pid); }));
}

}  // namespace
}  // namespace asr::test
