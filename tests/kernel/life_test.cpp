// Sandboxes from birth to end: in order, in the middle of everything, and by force.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <set>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"
#include "os/cgroup.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

std::size_t mounts() {
  std::string text = read_host_file("/proc/self/mountinfo");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Life : public KernelTest {
 protected:
  std::string instance() { return engine()->instance_dir().filename(); }
};

// ---- birth and end
// -------------------------------------------------------------------------------

TEST_F(Life, IdsAreUniqueAndPlain) {
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    auto box = sandbox();
    EXPECT_GE(box->id().text.size(), 26U);
    EXPECT_TRUE(std::all_of(box->id().text.begin(), box->id().text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    }));
    EXPECT_TRUE(ids.insert(box->id().text).second);
  }
}

TEST_F(Life, KnowsItself) {
  auto box = sandbox();
  EXPECT_EQ(box->state(), SandboxState::ready);
  EXPECT_EQ(box->spec(), spec_of(Preset::standard));
  EXPECT_TRUE(process_lives(box->host_pid()));
  EXPECT_FALSE(box->step_micros().empty());
  must(box->ping());
}

TEST_F(Life, LimitsThatCannotWorkAreRefused) {
  auto with = [](auto change) {
    SandboxSpec spec = spec_of(Preset::standard);
    change(spec.limits);
    return spec;
  };
  for (const SandboxSpec& spec :
       {with([](Limits& l) { l.memory_bytes = 1 << 20; }), with([](Limits& l) { l.pids = 0; }),
        with([](Limits& l) { l.pids = 1'000'000; }), with([](Limits& l) { l.disk_bytes = 0; }),
        with([](Limits& l) { l.disk_bytes = l.memory_bytes; }),
        with([](Limits& l) { l.inodes = 1; }), with([](Limits& l) { l.open_files = 1; }),
        with([](Limits& l) { l.milli_cpus = 1; }), with([](Limits& l) { l.wall_time = -1ms; })}) {
    auto made = wait(engine()->create(spec));
    ASSERT_TRUE(failed_with(made, Errc::invalid));
    EXPECT_NE(made.error().what, "");
  }
}

TEST_F(Life, HundredComeAndGoAndLeaveNothing) {
  sandbox();  // What is made once is made now.
  std::size_t descriptors_before = open_descriptors();
  std::size_t mounts_before = mounts();
  for (int i = 0; i < 100; ++i) {
    auto box = sandbox();
    EXPECT_EQ(sh(*box, "echo x").out, "x\n");
    int pid = box->host_pid();
    must(box->destroy());
    EXPECT_FALSE(process_lives(pid));
    EXPECT_EQ(box->state(), SandboxState::gone);
  }
  EXPECT_TRUE(eventually([&] { return groups_of(instance(), true).empty(); }));
  EXPECT_LT(groups_of(instance()).size(), 100U);  // Some are kept, to be used again.
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= descriptors_before + 2; }))
      << open_descriptors() << " of " << descriptors_before;
  EXPECT_EQ(mounts(), mounts_before);
  EXPECT_TRUE(sandbox_inits().empty());
}

TEST_F(Life, DroppingIsDestroying) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, tool({"tree"}));
  read_until(*execution, "grown");
  int pid = box->host_pid();
  box.reset();
  EXPECT_TRUE(eventually([&] { return !process_lives(pid); }));
  EXPECT_EQ(must(execution->wait()).reason, EndReason::sandbox_gone);
}

TEST_F(Life, HundredAliveAtOnce) {
  std::vector<SandboxPtr> boxes;
  for (int i = 0; i < 100; ++i) boxes.push_back(sandbox());
  for (const SandboxPtr& box : boxes) must(box->ping());
  std::vector<std::future<Result<void>>> ends;
  for (const SandboxPtr& box : boxes) ends.push_back(begin(box->destroy()));
  for (auto& end : ends) EXPECT_TRUE(succeeded(end.get()));
}

// ---- ending in the middle
// ------------------------------------------------------------------------

TEST_F(Life, DestroyWhileAProgramRuns) {
  auto box = sandbox();
  auto running = begin(box->run(shell("echo started; sleep 100")));
  auto execution = start(*box, shell("sleep 100"));
  must(box->destroy());
  auto result = running.get();
  // As a result that says so, or as an error: never as the program's own end.
  if (result)
    EXPECT_EQ(result->status.reason, EndReason::sandbox_gone);
  else
    EXPECT_EQ(result.error().code, Errc::gone);
  EXPECT_EQ(must(execution->wait()).reason, EndReason::sandbox_gone);
  EXPECT_FALSE(must(execution->read()).has_value());
  EXPECT_TRUE(failed_with(wait(execution->signal(SIGTERM)), Errc::gone));
}

TEST_F(Life, DestroyWhileInputIsBeingWritten) {
  auto box = sandbox();
  Command command = shell("sleep 100");
  command.stdin_mode = StdinMode::pipe;
  auto execution = start(*box, command);
  auto writing = begin(execution->write_stdin(noise(4 << 20)));
  must(box->destroy());
  ASSERT_EQ(writing.wait_for(10s), std::future_status::ready);
  EXPECT_FALSE(writing.get());
}

TEST_F(Life, DestroyWhileAnArchiveGoesIn) {
  auto box = sandbox();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd writer(ends[1]);
  auto unpacking = begin(box->archive_in("/workspace/in", UniqueFd(ends[0])));
  ASSERT_EQ(::write(writer.get(), "partial", 7), 7);
  must(box->destroy());
  ASSERT_EQ(unpacking.wait_for(10s), std::future_status::ready);
  EXPECT_TRUE(failed_with(unpacking.get(), Errc::gone));
}

TEST_F(Life, DestroyWhileOnATerminal) {
  auto box = sandbox_with_tool();
  Command command = tool({"terminal"});
  command.terminal = TerminalSize{};
  auto execution = start(*box, command);
  read_until(*execution, "size");
  must(box->destroy());
  EXPECT_EQ(must(execution->wait()).reason, EndReason::sandbox_gone);
  EXPECT_FALSE(wait(execution->resize({})));
  EXPECT_FALSE(wait(execution->write_stdin("x")));
}

TEST_F(Life, DestroyWhileWatching) {
  auto box = sandbox();
  auto watch = must(box->watch("/workspace"));
  auto next = begin(watch->next());
  must(box->destroy());
  ASSERT_EQ(next.wait_for(10s), std::future_status::ready);
  EXPECT_TRUE(failed_with(next.get(), Errc::gone));
}

TEST_F(Life, DestroyDuringAForkBomb) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, tool({"bomb"}));
  read_until(*execution, "armed");
  auto started = Clock::now();
  must(box->destroy());
  EXPECT_LT(since(started), 5s);
  EXPECT_TRUE(eventually([&] { return sandbox_inits().empty(); }));
}

TEST_F(Life, DestroyTwiceAndByMany) {
  auto box = sandbox();
  std::vector<std::future<Result<void>>> ends;
  for (int i = 0; i < 10; ++i) ends.push_back(begin(box->destroy()));
  for (auto& end : ends) EXPECT_TRUE(succeeded(end.get()));
  must(box->destroy());
}

TEST_F(Life, EveryCallAfterTheEndSaysGone) {
  auto box = sandbox();
  must(box->destroy());
  EXPECT_TRUE(failed_with(wait(box->run(shell("true"))), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->start(shell("true"))), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->processes()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->kill_all()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->signal_process(2, SIGTERM)), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->read_file("/etc/passwd")), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->write_file("/workspace/x", "")), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->list("/")), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->watch("/workspace")), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->archive_out("/workspace")), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->connect(80)), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->ping()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->usage()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->pause()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->resume()), Errc::gone));
}

// ---- by force
// ------------------------------------------------------------------------------------

TEST_F(Life, KilledSandboxIsGoneAndSaysSo) {
  auto box = sandbox();
  auto other = sandbox();
  auto execution = start(*box, shell("echo up; sleep 100"));
  read_until(*execution, "up");
  auto watch = must(box->watch("/workspace"));
  ASSERT_EQ(::kill(box->host_pid(), SIGKILL), 0);
  ExitStatus status = must(execution->wait());
  EXPECT_EQ(status.reason, EndReason::sandbox_gone);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(failed_with(wait(watch->next()), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->run(shell("true"))), Errc::gone));
  EXPECT_TRUE(eventually([&] { return box->state() == SandboxState::gone; }));
  must(box->destroy());
  EXPECT_EQ(sh(*other, "echo lives").out, "lives\n");
}

// Nothing inside can end pid 1, which is not theirs.
TEST_F(Life, WorkloadCannotKillItsSandbox) {
  auto box = sandbox();
  sh(*box, "kill -9 1; kill -9 -1; kill -TERM 1", "root");
  sh(*box, "kill -9 -1");
  EXPECT_EQ(sh(*box, "echo lives").out, "lives\n");
}

TEST_F(Life, SandboxesOutliveTheirZygote) {
  options().zygotes = 2;
  auto box = sandbox();
  std::vector<int> zygotes = children_named("asr-zygote");
  ASSERT_EQ(zygotes.size(), 2U);
  for (int pid : zygotes) ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(sh(*box, "echo lives on").out, "lives on\n");
  // Not one caller is told of it.
  for (int i = 0; i < 4; ++i) {
    auto made = wait(engine()->create(spec_of(Preset::standard)));
    ASSERT_TRUE(succeeded(made)) << "create " << i << " after the zygotes were killed";
    EXPECT_EQ(sh(**made, "echo new").out, "new\n");
  }
  EXPECT_TRUE(log().contains("zygote")) << log().text();
  int pid = box->host_pid();
  must(box->destroy());
  EXPECT_FALSE(process_lives(pid));
  EXPECT_TRUE(eventually([&] { return groups_of(instance(), true).empty(); }))
      << groups_of(instance(), true).size();
}

// Before the engine can have noticed.
TEST_F(Life, CreateRightAfterTheZygoteDied) {
  sandbox();
  for (int round = 0; round < 5; ++round) {
    for (int pid : children_named("asr-zygote")) ASSERT_EQ(::kill(pid, SIGKILL), 0);
    auto made = wait(engine()->create(spec_of(Preset::standard)));
    ASSERT_TRUE(succeeded(made)) << "round " << round;
  }
}

TEST_F(Life, ZygoteKilledInTheMiddleOfABurst) {
  sandbox();
  std::vector<int> zygotes = children_named("asr-zygote");
  std::vector<std::future<Result<SandboxPtr>>> made;
  for (int i = 0; i < 30; ++i) made.push_back(begin(engine()->create(spec_of(Preset::standard))));
  (void)made[3].wait_for(10s);
  for (int pid : zygotes) ::kill(pid, SIGKILL);
  std::size_t failures = 0;
  std::string first;
  for (auto& one : made) {
    auto box = one.get();
    if (box) continue;
    if (failures++ == 0) first = box.error().what;
  }
  EXPECT_EQ(failures, 0U) << "of 30 that were being made: " << first;
}

// ---- the engine's end
// ----------------------------------------------------------------------------

TEST_F(Life, StopLeavesNothing) {
  std::vector<SandboxPtr> boxes;
  for (int i = 0; i < 10; ++i) boxes.push_back(sandbox_with_tool());
  auto execution = start(*boxes[0], tool({"bomb"}));
  read_until(*execution, "armed");
  if (boxes[1]->isolation().find("pause")->guarantee == Guarantee::full) must(boxes[1]->pause());
  must(engine()->warm(spec_of(Preset::standard), {.size = 3}));
  std::string id = instance();
  fs::path dir = engine()->instance_dir();
  std::vector<int> pids = sandbox_inits();
  ASSERT_EQ(pids.size(), 13U);
  EXPECT_FALSE(groups_of(id).empty());
  must(engine()->stop());
  for (int pid : pids) EXPECT_FALSE(process_lives(pid));
  for (const SandboxPtr& box : boxes) EXPECT_TRUE(failed_with(wait(box->ping()), Errc::gone));
  execution.reset();
  boxes.clear();
  stop_engine();
  EXPECT_THAT(groups_of(id), testing::IsEmpty());
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_TRUE(children_named("asr-zygote").empty());
}

// The same for somebody who only lets go of it, with sandboxes still in hand.
TEST_F(Life, DestructorLeavesNothing) {
  asio::io_context context;
  EngineOptions own = options();
  auto engine = Engine::start(context.get_executor(), own);
  ASSERT_TRUE(succeeded(engine));
  std::string id = (*engine)->instance_dir().filename();
  fs::path dir = (*engine)->instance_dir();
  std::vector<std::future<Result<SandboxPtr>>> made;
  for (int i = 0; i < 3; ++i)
    made.push_back(
        asio::co_spawn(context, (*engine)->create(spec_of(Preset::standard)), asio::use_future));
  auto ready = [&] {
    for (auto& one : made)
      if (one.wait_for(0s) != std::future_status::ready) return false;
    return true;
  };
  while (!ready()) context.run_one();
  std::vector<SandboxPtr> boxes;
  for (auto& one : made) boxes.push_back(*one.get());
  int pid = boxes[0]->host_pid();
  engine->reset();
  EXPECT_TRUE(eventually([&] { return !process_lives(pid); }));
  boxes.clear();
  context.restart();
  context.run_for(200ms);
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_TRUE(eventually([&] { return groups_of(id).empty(); })) << groups_of(id).front();
}

TEST_F(Life, TwoEnginesShareARuntimeFolder) {
  auto box = sandbox();
  {
    TestEngine second(options());
    EXPECT_EQ(second->recovery().instances, 0U);
    EXPECT_NE(second->instance_dir(), engine()->instance_dir());
    auto other = second.sandbox();
    EXPECT_EQ(second.sh(*other, "echo two").out, "two\n");
    EXPECT_EQ(sh(*box, "echo one").out, "one\n");
  }
  EXPECT_EQ(sh(*box, "echo still").out, "still\n");
}

TEST_F(Life, NothingIsMadeOnceTheEngineStops) {
  auto box = sandbox();
  auto making = begin(engine()->create(spec_of(Preset::standard)));
  must(engine()->stop());
  auto late = making.get();
  EXPECT_TRUE(!late || (*late)->state() == SandboxState::gone);
  EXPECT_TRUE(failed_with(wait(engine()->create(spec_of(Preset::standard))), Errc::gone));
  EXPECT_FALSE(wait(engine()->warm(spec_of(Preset::standard), {})));
}

}  // namespace
}  // namespace asr::test
