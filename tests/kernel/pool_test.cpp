// Sandboxes made in advance.
#include <signal.h>

#include <set>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

class Pools : public KernelTest {
 protected:
  PoolState state() {
    auto states = engine()->pools();
    return states.empty() ? PoolState{} : states[0];
  }
  bool becomes_full(std::uint32_t size) {
    return eventually([&] { return state().ready == size; });
  }
  const SandboxSpec spec_ = spec_of(Preset::standard);
};

TEST_F(Pools, AreFullOnceWarm) {
  EXPECT_TRUE(engine()->pools().empty());
  must(engine()->warm(spec_, {.size = 4}));
  ASSERT_EQ(engine()->pools().size(), 1U);
  EXPECT_EQ(state().ready, 4U);
  EXPECT_EQ(state().wanted, 4U);
  EXPECT_EQ(state().key, pool_key(spec_));
}

TEST_F(Pools, HandOutAndFillUpAgain) {
  must(engine()->warm(spec_, {.size = 4}));
  std::set<std::string> ids;
  for (std::uint64_t i = 1; i <= 10; ++i) {
    auto box = sandbox(spec_);
    EXPECT_TRUE(ids.insert(box->id().text).second);
    EXPECT_EQ(sh(*box, "echo warm").out, "warm\n");
    EXPECT_TRUE(becomes_full(4));
    EXPECT_EQ(state().served_warm, i);
  }
  EXPECT_EQ(state().served_cold, 0U);
}

TEST_F(Pools, ServeTheSameSpecOnly) {
  must(engine()->warm(spec_, {.size = 2}));
  SandboxSpec other = spec_;
  other.limits.memory_bytes *= 2;
  auto box = sandbox(other);
  EXPECT_EQ(box->spec().limits.memory_bytes, other.limits.memory_bytes);
  EXPECT_EQ(state().ready, 2U);
  EXPECT_EQ(state().served_warm, 0U);
}

// Limits of single executions are not part of what a pool is chosen by; what was asked for must
// hold all the same.
TEST_F(Pools, KeepTheExecutionLimitsThatWereAskedFor) {
  must(engine()->warm(spec_, {.size = 2}));
  SandboxSpec quick = spec_;
  quick.limits.wall_time = 300ms;
  quick.limits.output_bytes = 1000;
  auto box = sandbox(quick);
  EXPECT_EQ(box->spec().limits.wall_time, 300ms);
  Command command = shell("sleep 5");
  EXPECT_EQ(must(box->run(command)).status.reason, EndReason::wall_time);
}

TEST_F(Pools, BurstIsServedColdNotRefused) {
  must(engine()->warm(spec_, {.size = 4}));
  std::vector<std::future<Result<SandboxPtr>>> made;
  for (int i = 0; i < 50; ++i) made.push_back(begin(engine()->create(spec_)));
  std::vector<SandboxPtr> boxes;
  std::set<std::string> ids;
  for (auto& one : made) {
    auto box = one.get();
    ASSERT_TRUE(succeeded(box));
    EXPECT_TRUE(ids.insert((*box)->id().text).second) << "handed out twice";
    boxes.push_back(*std::move(box));
  }
  for (const SandboxPtr& box : boxes) EXPECT_EQ(sh(*box, "echo x").out, "x\n");
  PoolState after = state();
  EXPECT_EQ(after.served_warm + after.served_cold, 50U);
  EXPECT_GE(after.served_warm, 4U);
  EXPECT_TRUE(becomes_full(4));
}

TEST_F(Pools, DeadSandboxIsNotHandedOut) {
  must(engine()->warm(spec_, {.size = 3}));
  std::vector<int> pids = sandbox_inits();
  ASSERT_EQ(pids.size(), 3U);
  for (int pid : pids) ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(eventually([] { return sandbox_inits().empty(); }));
  for (int i = 0; i < 3; ++i) {
    auto box = sandbox(spec_);
    EXPECT_EQ(sh(*box, "echo lives").out, "lives\n");
  }
  EXPECT_TRUE(becomes_full(3));
}

// The next to be handed out has stopped answering but is not dead: nobody waits long for it.
TEST_F(Pools, SilentSandboxIsNotWaitedForLong) {
  must(engine()->warm(spec_, {.size = 1, .refill_at_once = 1}));
  std::vector<int> pids = sandbox_inits();
  ASSERT_EQ(pids.size(), 1U);
  ASSERT_EQ(::kill(pids[0], SIGSTOP), 0);
  std::this_thread::sleep_for(1100ms);  // Right after its first answer it is not asked again.
  auto started = Clock::now();
  auto made = begin(engine()->create(spec_));
  bool in_time = made.wait_for(10s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "a stopped sandbox in the pool holds the caller";
  ::kill(pids[0], SIGCONT);
  auto box = made.get();
  ASSERT_TRUE(succeeded(box));
  EXPECT_LT(since(started), 12s);
}

TEST_F(Pools, DrainEndsWhatWaits) {
  must(engine()->warm(spec_, {.size = 4}));
  auto kept = sandbox(spec_);
  std::vector<int> pids = sandbox_inits();
  must(engine()->drain(spec_));
  EXPECT_TRUE(engine()->pools().empty());
  EXPECT_TRUE(eventually([&] { return sandbox_inits() == std::vector<int>{kept->host_pid()}; }));
  EXPECT_EQ(sh(*kept, "echo kept").out, "kept\n");
  EXPECT_EQ(sh(*sandbox(spec_), "echo cold").out, "cold\n");
  EXPECT_TRUE(failed_with(wait(engine()->drain(spec_)), Errc::not_found));
}

TEST_F(Pools, WarmAgainChangesTheSize) {
  must(engine()->warm(spec_, {.size = 4}));
  must(engine()->warm(spec_, {.size = 2}));
  EXPECT_EQ(engine()->pools().size(), 1U);
  EXPECT_EQ(state().ready, 2U);
  EXPECT_TRUE(eventually([&] { return sandbox_inits().size() == 2; }));
}

TEST_F(Pools, SizesThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(failed_with(wait(engine()->warm(spec_, {.size = 0})), Errc::invalid));
  EXPECT_TRUE(
      failed_with(wait(engine()->warm(spec_, {.size = 1, .refill_at_once = 0})), Errc::invalid));
  SandboxSpec bad = spec_;
  bad.limits.memory_bytes = 1;
  EXPECT_TRUE(failed_with(wait(engine()->warm(bad, {})), Errc::invalid));
  EXPECT_TRUE(engine()->pools().empty());
}

TEST_F(Pools, OfABrokenEnvironmentSaySo) {
  SandboxSpec broken = spec_;
  broken.environment = {Environment::Kind::folder, "/does/not/exist"};
  EXPECT_TRUE(failed_with(wait(engine()->warm(broken, {.size = 2})), Errc::not_found));
  EXPECT_TRUE(failed_with(wait(engine()->create(broken)), Errc::not_found));
}

// Refilling goes on in the background while the engine ends.
TEST_F(Pools, StopDuringARefillIsClean) {
  for (int round = 0; round < 5; ++round) {
    must(engine()->warm(spec_, {.size = 6, .refill_at_once = 3}));
    for (int i = 0; i < 6; ++i) sandbox(spec_);
    stop_engine();
  }
}

}  // namespace
}  // namespace asr::test
