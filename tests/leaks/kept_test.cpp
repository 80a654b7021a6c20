// Daemons that keep sandboxes, killed at any moment, with or without their keeper: the next one
// adopts what was kept, and when the last one stops nothing is left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "os/file.hpp"
#include "snapshot.hpp"
#include "support/engine_fixture.hpp"
#include "support/host_files.hpp"

namespace asr::test {
namespace {

using namespace std::chrono_literals;

int rounds() {
  const char* text = std::getenv("ASR_KEPT_ROUNDS");
  return text != nullptr ? std::stoi(text) : 30;
}

class Kept : public testing::Test {
 protected:
  Kept() : scope_{scratch_.path() / "run", scratch_.path() / "cache", {}} {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }

  EngineOptions options() const {
    EngineOptions options;
    options.runtime_dir = scope_.runtime_dir;
    options.cache_dir = scope_.cache_dir;
    options.instance = "churn";
    options.zygotes = 1;
    return options;
  }

  int start_victim() const {
    std::vector<std::string> words{ASR_KEPT_VICTIM, scope_.runtime_dir, scope_.cache_dir, "churn",
                                   "churn"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    int pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  static std::set<int> keepers() {
    std::set<int> found;
    for (int pid : marked_processes())
      if (read_host_file("/proc/" + std::to_string(pid) + "/comm") == "asr-keeper\n")
        found.insert(pid);
    return found;
  }

  // What was adopted works, unless the daemon had just sent it its end. How many did.
  static int check_adopted(TestEngine& engine, std::vector<std::shared_ptr<Sandbox>>& boxes) {
    boxes = engine->adopted();
    EXPECT_EQ(boxes.size(), engine->recovery().adopted.size());
    for (const std::string& problem : engine->recovery().problems) ADD_FAILURE() << problem;
    int working = 0;
    for (const auto& box : boxes) {
      if (box->state() == SandboxState::paused) (void)engine.wait(box->resume());
      auto ran = engine.wait(box->run(shell("echo alive")));
      if (!ran) EXPECT_EQ(ran.error().code, Errc::gone) << ran.error().what;
      if (!ran || ran->status.reason == EndReason::sandbox_gone) continue;
      EXPECT_EQ(ran->out, "alive\n");
      ++working;
      for (const auto& program : box->adopted_executions()) {
        (void)engine.wait(program->signal(SIGKILL));
        EXPECT_EQ(engine.must(program->wait()).signal, SIGKILL);
      }
    }
    return working;
  }

  ScratchDir scratch_;
  Scope scope_;
};

TEST_F(Kept, KillsAtRandomMomentsLeakNothing) {
  mark_descendants();
  {
    TestEngine first(options());
    (void)first.sandbox();
    scope_.instances.insert(first->instance_dir().filename());
  }
  Counts before = count_remains(scope_);
  std::mt19937 random(std::random_device{}());
  int adopted = 0;
  int working = 0;
  int lost = 0;
  for (int round = 0; round < rounds(); ++round) {
    int victim = start_victim();
    ASSERT_GT(victim, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 600));
    if (round % 5 == 4)
      for (int keeper : keepers()) signal_one(keeper, SIGKILL);
    signal_one(victim, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(victim, &status, 0), victim);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it died by itself";
    // Now and then two daemons die before anybody looks.
    if (round % 3 == 2) continue;
    TestEngine next(options());
    std::vector<std::shared_ptr<Sandbox>> boxes;
    working += check_adopted(next, boxes);
    adopted += static_cast<int>(boxes.size());
    lost += static_cast<int>(next->recovery().lost.size());
    if (round % 2 == 0) {
      next.must(next->leave());
      boxes.clear();
      next.drop();
    }
  }
  { TestEngine last(options()); }
  EXPECT_EQ(settle(
                before, [&] { return count_remains(scope_); }, {}, 10s),
            "");
  std::cout << rounds() << " kills: " << adopted << " sandboxes adopted, " << adopted - working
            << " of them dying, " << lost << " lost\n";
  EXPECT_GT(working, 0);
  EXPECT_LE(adopted - working, rounds());
}

}  // namespace
}  // namespace asr::test
