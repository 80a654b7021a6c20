// What a daemon that was killed leaves behind, and what the next one does about it.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"
#include "os/cgroup.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;

class Recovery : public KernelTest {
 protected:
  struct Daemon {
    int pid = -1;
    std::string instance;
    std::vector<int> sandboxes;
  };

  Daemon start_daemon(const char* count, const char* state) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
    std::string run = options().runtime_dir;
    std::string cache = options().cache_dir;
    const char* argv[] = {ASR_KERNEL_VICTIM, run.c_str(), cache.c_str(), count, state, nullptr};
    Daemon daemon;
    EXPECT_EQ(::posix_spawn(&daemon.pid, ASR_KERNEL_VICTIM, &actions, nullptr,
                            const_cast<char**>(argv), environ),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    writer.reset();
    std::string line;
    char c = 0;
    while (::read(reader.get(), &c, 1) == 1 && c != '\n') line += c;
    std::istringstream text(line);
    text >> daemon.instance;
    for (int pid = 0; text >> pid;) daemon.sandboxes.push_back(pid);
    EXPECT_FALSE(daemon.instance.empty()) << "the daemon did not start";
    return daemon;
  }

  static void kill_daemon(const Daemon& daemon) {
    signal_one(daemon.pid, SIGKILL);
    ASSERT_EQ(::waitpid(daemon.pid, nullptr, 0), daemon.pid);
  }

  bool can_pause() {
    EngineOptions own = options();
    TestEngine probe(own);
    return probe.sandbox()->isolation().find("pause")->guarantee == Guarantee::full;
  }

  void expect_clean(const Daemon& daemon) {
    for (int pid : daemon.sandboxes)
      EXPECT_TRUE(eventually([&] { return !process_lives(pid); })) << pid;
    EXPECT_TRUE(groups_of(daemon.instance).empty());
    EXPECT_FALSE(fs::exists(options().runtime_dir / daemon.instance));
    EXPECT_THAT(engine()->recovery().problems, testing::IsEmpty());
  }
};

TEST_F(Recovery, SandboxesDieWithTheirDaemon) {
  Daemon daemon = start_daemon("3", "running");
  ASSERT_EQ(daemon.sandboxes.size(), 3U);
  for (int pid : daemon.sandboxes) EXPECT_TRUE(process_lives(pid));
  kill_daemon(daemon);
  for (int pid : daemon.sandboxes)
    EXPECT_TRUE(eventually([&] { return !process_lives(pid); }, 5s)) << pid;
}

TEST_F(Recovery, NextStartCleansUpAndSaysSo) {
  Daemon daemon = start_daemon("3", "running");
  kill_daemon(daemon);
  EXPECT_EQ(engine()->recovery().instances, 1U);
  EXPECT_EQ(engine()->recovery().sandboxes, 3U);
  expect_clean(daemon);
  EXPECT_TRUE(log().contains("recovered")) << log().text();
  EXPECT_EQ(sh(*sandbox(), "echo new").out, "new\n");
}

TEST_F(Recovery, FrozenSandboxesGoToo) {
  if (!can_pause()) GTEST_SKIP() << "no sandbox can be paused on this machine";
  Daemon daemon = start_daemon("2", "paused");
  ASSERT_EQ(daemon.sandboxes.size(), 2U);
  kill_daemon(daemon);
  EXPECT_EQ(engine()->recovery().instances, 1U);
  EXPECT_EQ(engine()->recovery().sandboxes, 2U);
  EXPECT_GE(engine()->recovery().processes, 2U);
  expect_clean(daemon);
}

TEST_F(Recovery, LivingInstancesAreLeftAlone) {
  Daemon daemon = start_daemon("1", "running");
  EXPECT_EQ(engine()->recovery().instances, 0U);
  EXPECT_TRUE(process_lives(daemon.sandboxes[0]));
  stop_engine();
  EXPECT_TRUE(process_lives(daemon.sandboxes[0]));
  EXPECT_FALSE(groups_of(daemon.instance).empty());
  kill_daemon(daemon);
  EXPECT_EQ(engine()->recovery().instances, 1U);
  expect_clean(daemon);
}

TEST_F(Recovery, ManyDeadInstancesAtOnce) {
  std::vector<Daemon> dead;
  for (int i = 0; i < 3; ++i) {
    dead.push_back(start_daemon("1", "running"));
  }
  for (const Daemon& daemon : dead) kill_daemon(daemon);
  EXPECT_EQ(engine()->recovery().instances, 3U);
  for (const Daemon& daemon : dead) expect_clean(daemon);
}

TEST_F(Recovery, FreshFolderHasNothingToRecover) {
  EXPECT_EQ(engine()->recovery().instances, 0U);
  EXPECT_EQ(engine()->recovery().sandboxes, 0U);
  EXPECT_EQ(engine()->recovery().processes, 0U);
}

// Things that look like an instance, left by nobody we know.
TEST_F(Recovery, StrangeFoldersAreNoTrouble) {
  fs::create_directories(options().runtime_dir / "i-strange");
  fs::create_directories(options().runtime_dir / "other");
  fs::create_symlink("/etc", options().runtime_dir / "i-link");
  write_host_file(options().runtime_dir / "i-file", "x");
  ::chmod(options().runtime_dir.c_str(), 0700);
  EXPECT_EQ(sh(*sandbox(), "echo fine").out, "fine\n");
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  EXPECT_TRUE(fs::exists(options().runtime_dir / "other"));
}

TEST_F(Recovery, FolderOfSomebodyElseIsRefused) {
  fs::create_directories(options().runtime_dir);
  ::chmod(options().runtime_dir.c_str(), 0777);
  asio::io_context context;
  EXPECT_TRUE(failed_with(Engine::start(context.get_executor(), options()), Errc::denied));
}

}  // namespace
}  // namespace asr::test
