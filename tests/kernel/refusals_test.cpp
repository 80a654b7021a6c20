// Calls that a sandbox refuses: with the errors they always had, told by name, and no trouble for
// anybody else.
#include <errno.h>
#include <signal.h>

#include <map>
#include <thread>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

using Counts = std::map<std::string, std::uint64_t>;

class RefusedCalls : public KernelTest {
 protected:
  static Command measured(Command command) {
    command.effects = true;
    return command;
  }
  // What it was told of a command that ended well.
  Counts counts_of(const RunResult& result) {
    EXPECT_TRUE(result.status.ok()) << result.out << result.err;
    if (!result.status.effects || !result.status.effects->refused_calls) {
      ADD_FAILURE() << "nothing is known";
      return {};
    }
    return *result.status.effects->refused_calls;
  }
  static SandboxSpec unlimited() {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.milli_cpus = 0;
    return spec;
  }
  static SandboxSpec of_tier(SyscallTier tier) {
    SandboxSpec spec = unlimited();
    spec.tier = tier;
    return spec;
  }
  // The guest is there for others, too, again and again.
  void expect_answers(Sandbox& box, std::chrono::milliseconds during) {
    std::chrono::milliseconds longest{0};
    for (auto deadline = Clock::now() + during; Clock::now() < deadline;) {
      auto started = Clock::now();
      must(box.ping());
      must(box.stat("/workspace"));
      EXPECT_TRUE(sh(box, "true").status.ok());
      longest = std::max(longest, since(started));
    }
    EXPECT_LT(longest, 5s);
  }
};

TEST_F(RefusedCalls, HaveTheirErrorsAndAreToldByName) {
  for (SyscallTier tier : {SyscallTier::strict, SyscallTier::browser}) {
    auto box = sandbox_with_tool(of_tier(tier));
    RunResult result = must(box->run(measured(tool({"refused"}))));
    auto line = [](const char* name, int err) {
      return std::string(name) + " " + std::to_string(err) + "\n";
    };
    EXPECT_EQ(result.out, line("mount", EPERM) + line("mount", EPERM) + line("setns", EPERM) +
                              line("unshare", EPERM) + line("clone", EPERM) +
                              line("keyctl", EPERM) + line("socket", EAFNOSUPPORT) +
                              line("socket", EAFNOSUPPORT) + line("socket", EPROTONOSUPPORT) +
                              line("socket", EPERM) + line("socketpair", EAFNOSUPPORT) +
                              line("ioctl", EPERM) + line("mknodat", EPERM) +
                              line("personality", EPERM) + line("prctl", EPERM) +
                              line("absent", ENOSYS) + line("absent", ENOSYS) +
                              line("absent", ENOSYS) + line("absent", EINVAL) + line("allowed", 0));
    EXPECT_EQ(counts_of(result), (Counts{{"mount", 2},
                                         {"setns", 1},
                                         {"unshare", 1},
                                         {"clone", 1},
                                         {"keyctl", 1},
                                         {"socket", 4},
                                         {"socketpair", 1},
                                         {"ioctl", 1},
                                         {"mknodat", 1},
                                         {"personality", 1},
                                         {"prctl", 1}}));
  }
}

TEST_F(RefusedCalls, OrdinaryProgramsMakeNone) {
  auto box = sandbox();
  EXPECT_EQ(counts_of(must(box->run(measured(shell("ls -lR /etc > /dev/null 2>&1; "
                                                   "echo x | sort | (cat > f); exit 0"))))),
            Counts());
  EXPECT_EQ(counts_of(must(box->run(measured(
                shell("python3 -c 'import subprocess, threading; "
                      "threading.Thread(target=print).start(); subprocess.run([\"true\"])'"))))),
            Counts());
}

TEST_F(RefusedCalls, ByTierOnesThatOnlyOneRefuses) {
  auto newuser = [&](SyscallTier tier) {
    auto box = sandbox(of_tier(tier));
    RunResult result = must(box->run(measured(shell("unshare --user true; exit 0"))));
    return counts_of(result);
  };
  EXPECT_EQ(newuser(SyscallTier::strict), (Counts{{"unshare", 1}}));
  EXPECT_EQ(newuser(SyscallTier::browser), Counts());
}

TEST_F(RefusedCalls, OnlyThoseOfItsOwnTime) {
  auto box = sandbox_with_tool(unlimited());
  EXPECT_EQ(counts_of(must(box->run(measured(tool({"insist", "1", "5"}))))),
            (Counts{{"keyctl", 5}}));
  must(box->run(tool({"insist", "1", "7"})));
  EXPECT_EQ(counts_of(must(box->run(measured(tool({"insist", "2", "3"}))))),
            (Counts{{"keyctl", 6}}));
}

TEST_F(RefusedCalls, WhileSomethingElseIsWatched) {
  auto box = sandbox_with_tool(unlimited());
  Command command = shell("while read line; do /workspace/tool insist 1 9; done");
  command.stdin_mode = StdinMode::pipe;
  auto program = start(*box, command);
  auto watch = must(box->watch_effects(program->pid()));
  EXPECT_EQ(must(watch->finish()).refused_calls, Counts());
  watch = must(box->watch_effects(program->pid()));
  must(program->write_stdin("go\n"));
  EXPECT_NE(read_until(*program, "insisting"), "");
  must(program->close_stdin());
  EXPECT_TRUE(must(program->wait()).ok());
  EXPECT_EQ(must(watch->finish()).refused_calls, (Counts{{"keyctl", 9}}));
}

TEST_F(RefusedCalls, FloodIsCountedAndStopsNobody) {
  auto box = sandbox_with_tool(unlimited());
  auto running = begin(box->run(measured(tool({"insist", "8", "2500"}))));
  while (running.wait_for(0s) != std::future_status::ready) expect_answers(*box, 10ms);
  auto result = running.get();
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(counts_of(*result), (Counts{{"keyctl", 20'000}}));
}

TEST_F(RefusedCalls, EndlessFloodStopsNobody) {
  auto box = sandbox_with_tool(unlimited());
  auto program = start(*box, tool({"insist", "100", "0"}));
  read_until(*program, "insisting");
  expect_answers(*box, 1s);
  auto killed = Clock::now();
  must(program->signal(SIGKILL));
  EXPECT_EQ(must(program->wait()).signal, SIGKILL);
  EXPECT_LT(since(killed), 3s);
  must(box->kill_all());
  EXPECT_EQ(counts_of(must(box->run(measured(tool({"insist", "1", "2"}))))),
            (Counts{{"keyctl", 2}}));
}

// Each call wakes pid 1, which has more to look at then.
TEST_F(RefusedCalls, FloodOfAProgramWithLimitsIsWatchedAllTheSame) {
  SandboxSpec spec = unlimited();
  auto box = sandbox_with_tool(spec);
  Command command = measured(tool({"insist", "4", "0"}));
  command.cpu_time = 1s;
  command.wall_time = 60s;
  auto started = Clock::now();
  RunResult result = must(box->run(command));
  EXPECT_EQ(result.status.reason, EndReason::cpu_time);
  EXPECT_LT(since(started), 10s);
  ASSERT_TRUE(result.status.effects && result.status.effects->refused_calls);
  EXPECT_GT(result.status.effects->refused_calls->at("keyctl"), 1000U);
}

TEST_F(RefusedCalls, SandboxEndsWhileSomeWait) {
  for (int i = 0; i < 5; ++i) {
    auto box = sandbox_with_tool(unlimited());
    auto program = start(*box, measured(tool({"insist", "50", "0"})));
    read_until(*program, "insisting");
    auto started = Clock::now();
    must(box->destroy());
    EXPECT_EQ(must(program->wait()).reason, EndReason::sandbox_gone);
    EXPECT_LT(since(started), 3s);
  }
}

TEST_F(RefusedCalls, SandboxIsPausedWhileSomeWait) {
  auto box = sandbox_with_tool(unlimited());
  auto running = begin(box->run(measured(tool({"insist", "20", "500"}))));
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(20ms);
    must(box->pause());
    std::this_thread::sleep_for(20ms);
    must(box->resume());
    must(box->ping());
  }
  auto result = running.get();
  ASSERT_TRUE(succeeded(result));
  EXPECT_EQ(counts_of(*result), (Counts{{"keyctl", 10'000}}));
}

// A program cannot answer itself, or anybody else.
TEST_F(RefusedCalls, NobodyInsideIsAsked) {
  auto box = sandbox();
  RunResult result = sh(*box, R"(python3 - <<'E'
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(b'\x06\0\0\0\0\0\xff\x7f')
class Program(ctypes.Structure): _fields_ = [('size', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
program = Program(1, ctypes.addressof(allow))
seccomp = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]
libc.prctl(38, 1, 0, 0, 0)
for flags in 0, 8:
    print(flags, libc.syscall(seccomp, 1, flags, ctypes.byref(program)), ctypes.get_errno() == errno.EBUSY)
E)");
  EXPECT_EQ(result.out, "0 0 False\n8 -1 True\n") << result.err;
}

}  // namespace
}  // namespace asr::test
