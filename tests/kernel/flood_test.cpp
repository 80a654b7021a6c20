// Floods: what one sandbox pours out costs the daemon bounded memory, and no other sandbox
// anything.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

constexpr std::uint64_t kMostMemory = 32 << 20;

class Flood : public KernelTest {
 protected:
  static SandboxSpec unlimited() {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.milli_cpus = 0;
    spec.limits.output_bytes = 0;
    return spec;
  }
  void SetUp() override {
    box_ = sandbox_with_tool(unlimited());
    neighbour_ = sandbox(unlimited());
    sh(*neighbour_, "true");
  }
  // Runs small programs next door for so long. Ends what hangs by ending the flood.
  void expect_patience_next_door(std::chrono::milliseconds during) {
    std::vector<std::chrono::milliseconds> times;
    auto deadline = Clock::now() + during;
    while (Clock::now() < deadline) {
      auto started = Clock::now();
      auto running = begin(neighbour_->run(shell("echo x")));
      if (running.wait_for(10s) != std::future_status::ready) {
        ADD_FAILURE() << "the event loop does nothing but read the flood";
        ::kill(box_->host_pid(), SIGKILL);
      }
      EXPECT_EQ(running.get()->out, "x\n");
      times.push_back(since(started));
    }
    std::sort(times.begin(), times.end());
    EXPECT_LT(times[times.size() / 2], 300ms);
    EXPECT_LT(times.back(), 4s);
  }
  SandboxPtr box_;
  SandboxPtr neighbour_;
};

TEST_F(Flood, WithoutAReaderCostsLittleAndNobody) {
  std::uint64_t before = own_allocated_bytes();
  auto execution = start(*box_, tool({"flood"}));
  expect_patience_next_door(2s);
  EXPECT_LT(own_allocated_bytes(), before + kMostMemory);
  // It waits; it was not cut off.
  std::size_t read = 0;
  while (read < (8U << 20)) {
    auto chunk = must(execution->read());
    ASSERT_TRUE(chunk);
    read += chunk->data.size();
  }
  auto started = Clock::now();
  must(execution->signal(SIGKILL));
  EXPECT_EQ(must(execution->wait()).signal, SIGKILL);
  EXPECT_LT(since(started), 1s);
}

TEST_F(Flood, OfTwentyAtOnceIsBoundedToo) {
  std::uint64_t before = own_allocated_bytes();
  std::vector<ExecutionPtr> executions;
  for (int i = 0; i < 20; ++i) executions.push_back(start(*box_, tool({"flood"})));
  std::this_thread::sleep_for(1s);
  EXPECT_LT(own_allocated_bytes(), before + 3 * kMostMemory);
  auto started = Clock::now();
  must(box_->kill_all());
  for (const ExecutionPtr& execution : executions)
    EXPECT_EQ(must(execution->wait()).signal, SIGKILL);
  EXPECT_LT(since(started), 3s);
}

TEST_F(Flood, ThatIsReadIsReadFairly) {
  auto execution = start(*box_, tool({"flood"}));
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      auto chunk = wait(execution->read());
      if (!chunk || !*chunk) return;
    }
  });
  expect_patience_next_door(2s);
  stop = true;
  must(execution->signal(SIGKILL));
  reader.join();
}

// Nobody will ever read it: the program runs on, and the rest of the daemon, too.
TEST_F(Flood, OfADroppedExecutionHarmsNobody) {
  std::uint64_t before = own_allocated_bytes();
  for (int i = 0; i < 3; ++i) start(*box_, tool({"flood"})).reset();
  expect_patience_next_door(2s);
  EXPECT_LT(own_allocated_bytes(), before + kMostMemory);
  must(box_->kill_all());
}

TEST_F(Flood, ThatIsTruncatedHarmsNobody) {
  std::uint64_t before = own_allocated_bytes();
  Command command = tool({"flood"});
  command.output_bytes = 1000;
  command.overflow = OutputOverflow::truncate;
  command.wall_time = 2500ms;
  auto running = begin(box_->run(command));
  expect_patience_next_door(2s);
  auto result = running.get();
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(result->status.reason, EndReason::wall_time);
  EXPECT_EQ(result->out.size(), 1000U);
  EXPECT_GT(result->status.truncated_bytes, 1U << 20);
  EXPECT_LT(own_allocated_bytes(), before + kMostMemory);
}

// The program itself has ended; its children go on writing into the same pipe.
TEST_F(Flood, OfAChildThatWasLeftBehindEndsWithItsParent) {
  std::uint64_t before = own_allocated_bytes();
  auto running =
      begin(box_->run(shell("for i in 1 2 3 4 5 6; do /workspace/tool flood & done; exit 0")));
  bool in_time = running.wait_for(10s) == std::future_status::ready;
  EXPECT_TRUE(in_time) << "a child's output holds the call after the program's end";
  if (!in_time) ::kill(box_->host_pid(), SIGKILL);
  auto result = running.get();
  if (in_time) EXPECT_TRUE(result->status.ok());
  EXPECT_LT(own_allocated_bytes(), before + 4 * kMostMemory);
}

TEST_F(Flood, OfRequestsFromOneCallerLeavesTheOthersAlone) {
  std::vector<std::future<Result<FileInfo>>> asked;
  for (int i = 0; i < 2000; ++i) asked.push_back(begin(box_->stat("/workspace")));
  expect_patience_next_door(500ms);
  std::size_t answered = 0;
  for (auto& one : asked) {
    auto result = one.get();
    if (result)
      ++answered;
    else
      EXPECT_EQ(result.error().code, Errc::exhausted) << result.error().what;
  }
  EXPECT_GT(answered, 0U);
  must(box_->ping());
}

// Killed in the middle of its flood, it is dead at once.
TEST_F(Flood, EndsPromptlyWhenDestroyed) {
  auto execution = start(*box_, tool({"flood"}));
  std::this_thread::sleep_for(200ms);
  auto started = Clock::now();
  must(box_->destroy());
  EXPECT_EQ(must(execution->wait()).reason, EndReason::sandbox_gone);
  EXPECT_LT(since(started), 1s);
}

}  // namespace
}  // namespace asr::test
