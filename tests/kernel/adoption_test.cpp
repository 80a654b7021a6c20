// Sandboxes that outlive their daemon, and the next one that gets them back.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "kept_victim.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;

class Adoption : public KernelTest {
 protected:
  Adoption() { options().instance = "node"; }

  // Pids of its sandboxes.
  std::vector<int> start_victim(const std::string& what, int count = 1) {
    return victim_.start(options(), what, count);
  }
  void kill_victim() { victim_.kill(); }

  // By label.
  std::map<std::string, SandboxPtr> adopted() {
    std::map<std::string, SandboxPtr> boxes;
    for (SandboxPtr& box : engine()->adopted()) {
      std::string label = box->label();
      EXPECT_TRUE(boxes.emplace(label, std::move(box)).second) << label;
    }
    return boxes;
  }
  static std::map<std::string, ExecutionPtr> programs(Sandbox& box) {
    std::map<std::string, ExecutionPtr> all;
    for (ExecutionPtr& program : box.adopted_executions()) {
      std::string label = program->label();
      all.emplace(label, std::move(program));
    }
    return all;
  }

  std::string instance() { return engine()->instance_dir().filename(); }
  KeptVictim victim_;
};

// A child of any of its threads; -1 if there is none.
int keeper_of(int daemon) {
  std::error_code ec;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(daemon) + "/task", ec)) {
    std::ifstream children(task.path() / "children");
    for (int pid = 0; children >> pid;)
      if (read_host_file("/proc/" + std::to_string(pid) + "/comm") == "asr-keeper\n") return pid;
  }
  return -1;
}

std::string uid_map(int pid) { return read_host_file("/proc/" + std::to_string(pid) + "/uid_map"); }

// ---- the whole of it
// -----------------------------------------------------------------------------

TEST_F(Adoption, EverythingThatWasKeptIsThere) {
  std::vector<int> pids = start_victim("all");
  ASSERT_EQ(pids.size(), 20U);
  kill_victim();
  std::this_thread::sleep_for(200ms);
  for (int pid : pids) EXPECT_TRUE(process_lives(pid)) << pid;

  EXPECT_EQ(engine()->recovery().adopted.size(), 20U);
  EXPECT_THAT(engine()->recovery().lost, testing::IsEmpty());
  EXPECT_THAT(engine()->recovery().problems, testing::IsEmpty());
  auto boxes = adopted();
  ASSERT_EQ(boxes.size(), 20U);
  EXPECT_TRUE(engine()->adopted().empty()) << "they are handed over once";
  for (const auto& [label, box] : boxes) {
    EXPECT_EQ(box->spec(), spec_of(Preset::standard));
    EXPECT_TRUE(std::find(pids.begin(), pids.end(), box->host_pid()) != pids.end());
    EXPECT_FALSE(box->step_micros().empty());
    EXPECT_FALSE(box->isolation().facts.empty());
    if (label == "box-2") continue;
    must(box->ping());
    EXPECT_EQ(sh(*box, "echo hello").out, "hello\n") << label;
  }

  // The file.
  EXPECT_EQ(must(boxes["box-1"]->read_file("/workspace/file")), "written before");
  EXPECT_EQ(sh(*boxes["box-1"], "cat /root/file", "root").out, "of root");

  // The one that stood still.
  EXPECT_EQ(boxes["box-2"]->state(), SandboxState::paused);
  EXPECT_TRUE(failed_with(wait(boxes["box-2"]->run(shell("true"))), Errc::conflict));
  must(boxes["box-2"]->resume());
  EXPECT_EQ(sh(*boxes["box-2"], "echo awake").out, "awake\n");

  // The terminal.
  auto terminal = std::move(programs(*boxes["box-3"])["terminal"]);
  ASSERT_TRUE(terminal);
  must(terminal->resize({50, 100}));
  must(terminal->write_stdin("second\n"));
  EXPECT_THAT(read_until(*terminal, "then second"), testing::HasSubstr("then second"));
  EXPECT_TRUE(must(terminal->wait()).ok());

  // Whatever ended while nobody was there, or ends now.
  auto ending = programs(*boxes["box-4"]);
  ASSERT_EQ(ending.size(), 3U);
  EXPECT_EQ(read_to_end(*ending["seven"]), "out\nerr\n");
  ExitStatus seven = must(ending["seven"]->wait());
  EXPECT_EQ(seven.reason, EndReason::exited);
  EXPECT_EQ(seven.exit_code, 7);
  EXPECT_EQ(must(ending["limited"]->wait()).reason, EndReason::wall_time);
  must(ending["fed"]->write_stdin("words\n"));
  read_until(*ending["fed"], "got words");
  must(ending["fed"]->close_stdin());
  EXPECT_EQ(read_to_end(*ending["fed"]), "end\n");
  EXPECT_EQ(must(ending["fed"]->wait()).exit_code, 0);

  // Watching again works; the old watch is gone and holds up nothing.
  auto busy = programs(*boxes["box-5"]);
  auto watch = must(boxes["box-5"]->watch("/workspace"));
  EXPECT_FALSE(must(watch->next()).empty());
  must(busy["busy"]->signal(SIGKILL));
  EXPECT_EQ(must(busy["busy"]->wait()).signal, SIGKILL);
}

TEST_F(Adoption, OutputHasNoGapAndNoRepetition) {
  start_victim("all");
  kill_victim();
  auto boxes = adopted();
  auto counter = std::move(programs(*boxes["box-0"])["counter"]);
  ASSERT_TRUE(counter);
  std::string seen = read_host_file(options().runtime_dir / "counted");
  std::size_t before = seen.size();
  EXPECT_GT(before, 0U);
  while (seen.size() < before + (1 << 20)) seen += must(counter->read())->data;
  std::size_t from = 0;
  for (long expected = 0;; ++expected) {
    std::size_t end = seen.find('\n', from);
    if (end == std::string::npos) break;
    ASSERT_EQ(seen.substr(from, end - from), std::to_string(expected));
    from = end + 1;
  }
}

// A daemon that reads a little, dies, reads a little: ten times.
TEST_F(Adoption, ManyLivesOneCounter) {
  start_victim("all");
  kill_victim();
  std::string seen = read_host_file(options().runtime_dir / "counted");
  for (int life = 0; life < 10; ++life) {
    auto boxes = adopted();
    ASSERT_EQ(boxes.size(), 20U) << "life " << life;
    auto counter = std::move(programs(*boxes["box-0"])["counter"]);
    for (int i = 0; i < 5; ++i) seen += must(counter->read())->data;
    must(engine()->leave());
    counter.reset();
    boxes.clear();
    drop_engine();
  }
  std::size_t from = 0;
  long expected = 0;
  for (std::size_t end = 0; (end = seen.find('\n', from)) != std::string::npos; from = end + 1)
    ASSERT_EQ(seen.substr(from, end - from), std::to_string(expected++));
  EXPECT_GT(expected, 100);
  engine();  // Takes them up once more, to end them.
}

// ---- what is not kept
// ----------------------------------------------------------------------------

TEST_F(Adoption, OnlyWhatWasKeptLives) {
  std::vector<int> pids = start_victim("loose");
  ASSERT_EQ(pids.size(), 2U);
  kill_victim();
  EXPECT_TRUE(eventually([&] { return !process_lives(pids[1]); }, 5s));
  EXPECT_TRUE(process_lives(pids[0]));
  auto boxes = adopted();
  EXPECT_EQ(boxes.size(), 1U);
  EXPECT_EQ(engine()->recovery().sandboxes, 4U) << "the other one and the pool";
  EXPECT_THAT(groups_of(instance(), true), testing::Not(testing::IsEmpty()));
}

TEST_F(Adoption, WhatEndedMeanwhileIsReportedAndCleaned) {
  std::vector<int> pids = start_victim("plain", 3);
  kill_victim();
  signal_one(pids[1], SIGKILL);
  EXPECT_TRUE(eventually([&] { return !process_lives(pids[1]); }));
  ASSERT_EQ(engine()->recovery().lost.size(), 1U);
  EXPECT_EQ(engine()->recovery().lost[0].label, "box-1");
  EXPECT_NE(engine()->recovery().lost[0].why, "");
  EXPECT_EQ(adopted().size(), 2U);
  EXPECT_THAT(engine()->recovery().problems, testing::IsEmpty());
}

TEST_F(Adoption, AnEngineWithoutANameKeepsNothing) {
  options().instance.reset();
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->keep("x")), Errc::unsupported));
  auto program = start(*box, shell("sleep 10"));
  EXPECT_TRUE(failed_with(wait(program->keep("x")), Errc::conflict));
  EXPECT_EQ(keeper_of(::getpid()), -1);
  EXPECT_TRUE(failed_with(wait(engine()->leave()), Errc::unsupported));
}

TEST_F(Adoption, NamesAndLabelsAreChecked) {
  asio::io_context context;
  for (const char* name : {"", "a-b", "Node", "a/b", "..", "a b"}) {
    EngineOptions wrong = options();
    wrong.instance = name;
    EXPECT_TRUE(failed_with(Engine::start(context.get_executor(), wrong), Errc::invalid)) << name;
  }
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->keep(std::string(100'000, 'x'))), Errc::invalid));
  must(box->keep("one"));
  must(box->keep("two"));
  EXPECT_EQ(box->label(), "two");
}

// ---- others of this machine
// ----------------------------------------------------------------------

TEST_F(Adoption, OneDaemonAtATime) {
  start_victim("plain");
  asio::io_context context;
  EXPECT_TRUE(failed_with(Engine::start(context.get_executor(), options()), Errc::conflict));
}

TEST_F(Adoption, TheRecoveryOfOthersLeavesThemAlone) {
  std::vector<int> pids = start_victim("plain", 2);
  kill_victim();
  {
    EngineOptions other = options();
    other.instance.reset();
    TestEngine stranger(other);
    EXPECT_EQ(stranger->recovery().instances, 0U);
    EXPECT_EQ(stranger.sh(*stranger.sandbox(), "echo x").out, "x\n");
  }
  for (int pid : pids) EXPECT_TRUE(process_lives(pid));
  EXPECT_EQ(adopted().size(), 2U);
}

TEST_F(Adoption, UidRangesAreNotGivenToAnother) {
  std::vector<int> pids = start_victim("plain", 3);
  std::set<std::string> taken;
  for (int pid : pids) taken.insert(uid_map(pid));
  kill_victim();
  EngineOptions other = options();
  other.instance.reset();
  TestEngine stranger(other);
  for (int i = 0; i < 5; ++i) {
    auto box = stranger.sandbox();
    EXPECT_FALSE(taken.contains(uid_map(box->host_pid())));
  }
  auto boxes = adopted();
  ASSERT_EQ(boxes.size(), 3U);
  std::vector<SandboxPtr> more;
  for (int i = 0; i < 10; ++i) {
    more.push_back(sandbox());
    EXPECT_TRUE(taken.insert(uid_map(more.back()->host_pid())).second);
  }
}

// ---- the keeper
// ----------------------------------------------------------------------------------

// Its copies of descriptors lock nothing that its sandbox has given back.
TEST_F(Adoption, ASlowKeeperHoldsNoDisk) {
  if (::access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs loop devices";
  options().storage_dir = scratch() / "storage";
  SandboxSpec with_storage = spec_of(Preset::standard);
  with_storage.disk = PersistentDisk{"d"};
  with_storage.limits.disk_bytes = 64 << 20;
  with_storage.volumes.push_back({"shared", "/data"});
  must(engine()->make_volume("shared", {}));
  auto box = sandbox(with_storage);
  must(box->keep("one"));
  int keeper = keeper_of(::getpid());
  ASSERT_GT(keeper, 0);
  signal_one(keeper, SIGSTOP);
  must(box->destroy());
  box.reset();
  EXPECT_TRUE(wait(engine()->remove_storage("d")));
  EXPECT_TRUE(eventually([&] { return wait(engine()->remove_storage("shared")).has_value(); }, 5s));
  signal_one(keeper, SIGCONT);
}

TEST_F(Adoption, TheKeeperHasNoPrivileges) {
  must(sandbox()->keep("x"));
  int keeper = keeper_of(::getpid());
  ASSERT_GT(keeper, 0);
  std::string status = read_host_file("/proc/" + std::to_string(keeper) + "/status");
  for (const char* set : {"CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"})
    EXPECT_THAT(status, testing::HasSubstr(std::string(set) + ":\t0000000000000000\n"));
  EXPECT_THAT(status, testing::HasSubstr("NoNewPrivs:\t1\n"));
  EXPECT_THAT(status, testing::HasSubstr("Seccomp:\t2\n"));
  EXPECT_THAT(status, testing::HasSubstr("Threads:\t1\n"));
  EXPECT_EQ(read_host_file("/proc/" + std::to_string(keeper) + "/oom_score_adj"),
            read_host_file("/proc/self/oom_score_adj"));
}

TEST_F(Adoption, ADeadKeeperIsReplacedAndGivenEverything) {
  start_victim("all");
  int keeper = keeper_of(victim_.pid());
  ASSERT_GT(keeper, 0);
  for (int round = 0; round < 2; ++round) {
    int dead = keeper;
    signal_one(dead, SIGKILL);
    ASSERT_TRUE(
        eventually([&] { return (keeper = keeper_of(victim_.pid())) > 0 && keeper != dead; }));
  }
  std::this_thread::sleep_for(500ms);  // It is given everything as soon as it is there.
  kill_victim();
  auto boxes = adopted();
  ASSERT_EQ(boxes.size(), 20U);
  EXPECT_EQ(boxes["box-2"]->state(), SandboxState::paused);
  EXPECT_EQ(programs(*boxes["box-4"]).size(), 3U);
  EXPECT_EQ(programs(*boxes["box-0"]).size(), 1U);
  EXPECT_EQ(sh(*boxes["box-7"], "echo x").out, "x\n");
}

TEST_F(Adoption, WithoutAKeeperSandboxesLiveAsLongAsTheDaemon) {
  std::vector<int> pids = start_victim("plain", 2);
  int keeper = keeper_of(victim_.pid());
  ASSERT_GT(keeper, 0);
  signal_one(victim_.pid(), SIGSTOP);  // It cannot start another.
  signal_one(keeper, SIGKILL);
  std::this_thread::sleep_for(100ms);
  for (int pid : pids) EXPECT_TRUE(process_lives(pid));
  kill_victim();
  for (int pid : pids) EXPECT_TRUE(eventually([&] { return !process_lives(pid); }));
  EXPECT_TRUE(adopted().empty());
  EXPECT_EQ(engine()->recovery().instances, 1U);
}

TEST_F(Adoption, SandboxesDoNotWaitForEver) {
  ::setenv("ASR_KEEP_FOR", "1", 1);
  std::vector<int> pids = start_victim("plain", 2);
  ::unsetenv("ASR_KEEP_FOR");
  int keeper = keeper_of(victim_.pid());
  kill_victim();
  std::this_thread::sleep_for(300ms);
  for (int pid : pids) EXPECT_TRUE(process_lives(pid));
  EXPECT_TRUE(eventually([&] { return !process_lives(keeper); }, 5s));
  for (int pid : pids) EXPECT_TRUE(eventually([&] { return !process_lives(pid); }, 5s));
  EXPECT_TRUE(adopted().empty());
  EXPECT_EQ(engine()->recovery().instances, 1U);
  EXPECT_THAT(engine()->recovery().problems, testing::IsEmpty());
}

// ---- leaving
// -------------------------------------------------------------------------------------

TEST_F(Adoption, LeavingIsARestartWithoutALoss) {
  auto box = sandbox();
  auto other = sandbox();
  std::string id = box->id().text;
  int pid = box->host_pid();
  must(box->keep("mine"));
  auto program = start(*box, shell("read a; echo $a; exit 3"));
  must(program->keep("no stdin"));
  Command command = shell("read a; echo $a; exit 3");
  command.stdin_mode = StdinMode::pipe;
  auto fed = start(*box, command);
  must(fed->keep("stdin"));
  auto waiting = begin(fed->wait());
  auto reading = begin(fed->read());
  must(engine()->leave());
  EXPECT_EQ(waiting.get()->reason, EndReason::lost);
  EXPECT_TRUE(failed_with(reading.get(), Errc::gone));
  EXPECT_EQ(box->state(), SandboxState::gone);
  EXPECT_TRUE(failed_with(wait(box->run(shell("true"))), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->destroy()), Errc::gone));
  EXPECT_FALSE(process_lives(other->host_pid()));
  other.reset();
  fed.reset();
  program.reset();
  box.reset();
  drop_engine();
  EXPECT_TRUE(process_lives(pid));

  auto boxes = adopted();
  ASSERT_EQ(boxes.size(), 1U);
  EXPECT_EQ(boxes["mine"]->id().text, id);
  auto again = programs(*boxes["mine"]);
  ASSERT_EQ(again.size(), 2U);
  must(again["stdin"]->write_stdin("back\n"));
  EXPECT_EQ(read_to_end(*again["stdin"]), "back\n");
  EXPECT_EQ(must(again["stdin"]->wait()).exit_code, 3);
  EXPECT_EQ(must(again["no stdin"]->wait()).exit_code, 3);
  boxes.clear();
  EXPECT_TRUE(eventually([&] { return !process_lives(pid); })) << "dropped is destroyed";
}

TEST_F(Adoption, NothingKeptMeansNothingLeft) {
  sandbox();
  int keeper = keeper_of(::getpid());
  fs::path dir = engine()->instance_dir();
  std::string name = instance();
  leave_engine();
  EXPECT_FALSE(process_lives(keeper));
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_TRUE(groups_of(name).empty());
}

TEST_F(Adoption, StoppingEndsEverything) {
  auto box = sandbox();
  must(box->keep("x"));
  int pid = box->host_pid();
  int keeper = keeper_of(::getpid());
  fs::path dir = engine()->instance_dir();
  std::string name = instance();
  must(engine()->stop());
  box.reset();
  drop_engine();
  EXPECT_FALSE(process_lives(pid));
  EXPECT_FALSE(fs::exists("/proc/" + std::to_string(keeper)));
  EXPECT_FALSE(fs::exists(dir));
  EXPECT_TRUE(groups_of(name).empty());
}

// ---- programs
// ------------------------------------------------------------------------------------

// More ends than the socket has room for, and limits that hold while nobody listens.
TEST_F(Adoption, AGuestNobodyReadsGoesOn) {
  std::vector<int> pids = start_victim("crowd", 400);
  kill_victim();
  std::this_thread::sleep_for(4s);
  auto boxes = adopted();
  auto all = programs(*boxes["box-0"]);
  ASSERT_EQ(all.size(), 400U);
  for (const auto& [label, program] : all) {
    ExitStatus status = must(program->wait());
    EXPECT_EQ(status.reason, EndReason::exited);
    EXPECT_EQ(status.exit_code, std::stoi(label) % 100);
    EXPECT_LT(status.wall, 5s);
  }
  EXPECT_EQ(sh(*boxes["box-0"], "echo alive").out, "alive\n");
}

TEST_F(Adoption, WhatWasReadIsNotThereAgainAndTheEndIsRemembered) {
  auto box = sandbox();
  must(box->keep("x"));
  auto program = start(*box, shell("echo one; read x; echo two; exit 5"));
  must(program->keep("p"));
  EXPECT_EQ(read_to_end(*program), "one\ntwo\n");
  EXPECT_EQ(must(program->wait()).exit_code, 5);
  auto unread = start(*box, shell("echo unread; exit 6"));
  must(unread->keep("q"));
  EXPECT_EQ(must(unread->wait()).exit_code, 6);
  must(engine()->leave());  // While both are held: what became of them is still of interest.
  program.reset();
  unread.reset();
  box.reset();
  drop_engine();
  auto boxes = adopted();
  auto again = programs(*boxes["x"]);
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(must(again["p"]->wait()).exit_code, 5);
  EXPECT_EQ(read_to_end(*again["p"]), "");
  EXPECT_EQ(must(again["q"]->wait()).exit_code, 6);
  EXPECT_EQ(read_to_end(*again["q"]), "unread\n");
  again.clear();
  boxes.clear();
}

TEST_F(Adoption, DroppedProgramsAreForgotten) {
  auto box = sandbox();
  must(box->keep("x"));
  for (int i = 0; i < 3; ++i) must(start(*box, shell("sleep 100"))->keep("dropped"));
  must(box->ping());
  must(engine()->leave());
  box.reset();
  drop_engine();
  auto boxes = adopted();
  EXPECT_TRUE(programs(*boxes["x"]).empty());
  EXPECT_GE(must(boxes["x"]->processes()).size(), 3U) << "they go on in the background";
}

// The keeper's copy of a pipe must not keep it open.
TEST_F(Adoption, ClosedStreamsAreClosed) {
  auto box = sandbox();
  must(box->keep("x"));
  Command command = shell("cat; echo done >&2; while echo x; do :; done; echo ended >&2");
  command.stdin_mode = StdinMode::pipe;
  auto program = start(*box, command);
  must(program->keep("p"));
  must(program->write_stdin("text"));
  must(program->close_stdin());
  read_until(*program, "done");
  must(program->close_output(OutputChunk::Stream::out));
  ExitStatus status = must(program->wait());
  EXPECT_FALSE(status.ok());
}

// ---- figures
// -------------------------------------------------------------------------------------

TEST_F(Adoption, HundredAreAdoptedQuickly) {
  start_victim("plain", 100);
  kill_victim();
  auto started = Clock::now();
  engine();
  auto took = since(started);
  auto boxes = adopted();
  ASSERT_EQ(boxes.size(), 100U);
  for (const auto& [label, box] : boxes) must(box->ping());
  auto answered = since(started);
  RecordProperty("adopted_ms", std::to_string(took.count()));
  std::printf("100 sandboxes adopted in %ld ms, all have answered after %ld ms\n",
              static_cast<long>(took.count()), static_cast<long>(answered.count()));
  EXPECT_LT(took, 1s);
}

TEST_F(Adoption, KeepingAgainChangesTheLabel) {
  auto box = sandbox();
  for (const char* label : {"first", "again", "last"}) must(box->keep(label));
  EXPECT_EQ(box->label(), "last");
}

}  // namespace
}  // namespace asr::test
