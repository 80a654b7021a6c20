// Programs: what they are started with, how they end, and what a caller can do to them meanwhile.
#include <signal.h>

#include <algorithm>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;

class Programs : public KernelTest {
 protected:
  std::optional<ProcessInfo> find_process(Sandbox& sandbox, std::string_view argument) {
    for (ProcessInfo& process : must(sandbox.processes()))
      if (std::find(process.argv.begin(), process.argv.end(), argument) != process.argv.end())
        return process;
    return std::nullopt;
  }
};

// ---- what they are started with
// ------------------------------------------------------------------

TEST_F(Programs, GetTheirArgumentsAsTheyAre) {
  auto box = sandbox();
  RunResult result = run(
      *box, {"/usr/bin/printf", "<%s>", "", " a  b ", "$HOME", "new\nline", "\xff\xfe", "'\"\\"});
  EXPECT_EQ(result.out, "<>< a  b ><$HOME><new\nline><\xff\xfe><'\"\\>");
}

TEST_F(Programs, AreFoundInThePath) {
  auto box = sandbox();
  EXPECT_EQ(run(*box, {"echo", "found"}).out, "found\n");
  Command command;
  command.argv = {"mine"};
  command.env["PATH"] = "/workspace/bin";
  must(box->write_file("/workspace/bin/mine", "#!/bin/sh\necho own path\n", 0755));
  EXPECT_EQ(must(box->run(command)).out, "own path\n");
}

TEST_F(Programs, HaveAnEnvironmentOfTheirOwnOnly) {
  ::setenv("ASR_SECRET_OF_THE_DAEMON", "1", 1);
  auto box = sandbox();
  std::string env = run(*box, {"/usr/bin/env"}).out;
  EXPECT_THAT(env,
              HasSubstr("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"));
  EXPECT_THAT(env, HasSubstr("HOME=/home/user\n"));
  EXPECT_THAT(env, HasSubstr("USER=user\n"));
  EXPECT_THAT(env, HasSubstr("LOGNAME=user\n"));
  EXPECT_THAT(env, HasSubstr("LANG=C.UTF-8\n"));
  EXPECT_THAT(env, HasSubstr("PWD=/workspace\n"));
  EXPECT_THAT(env, testing::Not(HasSubstr("ASR_SECRET")));
  EXPECT_THAT(env, testing::Not(HasSubstr("TERM=")));
}

TEST_F(Programs, EnvironmentOfTheRequestWins) {
  auto box = sandbox();
  Command command;
  command.argv = {"/usr/bin/env"};
  command.env = {{"HOME", "/tmp"}, {"EMPTY", ""}, {"ODD", "a=b\nc"}, {"HOMER", "x"}};
  std::string env = must(box->run(command)).out;
  EXPECT_THAT(env, HasSubstr("HOME=/tmp\n"));
  EXPECT_THAT(env, testing::Not(HasSubstr("HOME=/home/user")));
  EXPECT_THAT(env, HasSubstr("EMPTY=\n"));
  EXPECT_THAT(env, HasSubstr("ODD=a=b\nc\n"));
  EXPECT_THAT(env, HasSubstr("HOMER=x\n"));
}

// The path of one program must not become that of the next.
TEST_F(Programs, PathOfOneDoesNotReachTheNext) {
  auto box = sandbox();
  Command command;
  command.argv = {"/bin/true"};
  command.env["PATH"] = "/nowhere";
  must(box->run(command));
  EXPECT_EQ(run(*box, {"echo", "here"}).out, "here\n");
}

TEST_F(Programs, BadNamesOfVariablesAreRefused) {
  auto box = sandbox();
  for (const char* name : {"", "A=B"}) {
    Command command = shell("true");
    command.env[name] = "x";
    EXPECT_TRUE(failed_with(wait(box->run(command)), Errc::invalid)) << name;
  }
}

TEST_F(Programs, RunInTheWorkspaceOrWhereAsked) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "pwd").out, "/workspace\n");
  Command command = shell("pwd; echo $PWD");
  command.cwd = "/usr/bin";
  EXPECT_EQ(must(box->run(command)).out, "/usr/bin\n/usr/bin\n");
}

TEST_F(Programs, MissingWorkingDirectoryIsNotStarted) {
  auto box = sandbox();
  Command command = shell("pwd");
  command.cwd = "/does/not/exist";
  ExitStatus status = must(box->run(command)).status;
  EXPECT_EQ(status.reason, EndReason::not_started);
  EXPECT_EQ(status.start_errno, ENOENT);
}

TEST_F(Programs, RunAsTheUserAskedFor) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "id -u; id -g; id -un").out, "1000\n1000\nuser\n");
  EXPECT_EQ(sh(*box, "id -u; id -g; echo $HOME", "root").out, "0\n0\n/root\n");
  EXPECT_EQ(sh(*box, "id -u; id -g", "4321").out, "4321\n4321\n");
  EXPECT_EQ(sh(*box, "id -un", "1000").out, "user\n");
  EXPECT_EQ(sh(*box, "id -u", "65534").out, "65534\n");
}

TEST_F(Programs, UsersThatAreNoneAreRefused) {
  auto box = sandbox();
  for (const char* user : {"nosuchuser", "", "65535", "65536", "4294967295", "4294967296", "-1",
                           "0x0", " 0", "root:x"})
    EXPECT_TRUE(failed_with(wait(box->run(shell("id", user))), Errc::invalid))
        << '"' << user << '"';
  EXPECT_EQ(sh(*box, "id -u").out, "1000\n");
}

// The file is the workload's own to write: it may name users, but not reach ids outside.
TEST_F(Programs, UserOfAPasswdWrittenInside) {
  auto box = sandbox();
  sh(*box,
     "echo 'eve:x:77:78::/tmp:/bin/sh' >> /etc/passwd; echo 'out:x:65535:0::/:/bin/sh' >> "
     "/etc/passwd",
     "root");
  EXPECT_EQ(sh(*box, "id -u; id -g; echo $HOME", "eve").out, "77\n78\n/tmp\n");
  EXPECT_TRUE(failed_with(wait(box->run(shell("id", "out"))), Errc::invalid));
}

// ---- stdin, stdout, stderr
// -----------------------------------------------------------------------

TEST_F(Programs, StreamsAreSeparate) {
  auto box = sandbox();
  RunResult result = sh(*box, "echo out; echo err >&2; echo out2");
  EXPECT_EQ(result.out, "out\nout2\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST_F(Programs, StdinIsEmptyUnlessGiven) {
  auto box = sandbox();
  EXPECT_EQ(sh(*box, "cat; echo end; readlink /proc/self/fd/0").out, "end\n/dev/null\n");
}

TEST_F(Programs, StdinEndsAfterTheInput) {
  auto box = sandbox();
  EXPECT_EQ(must(box->run(shell("cat; echo end"), "three\nlines\nhere")).out,
            "three\nlines\nhereend\n");
}

TEST_F(Programs, TwentyMegabytesThroughCatAreExact) {
  auto box = sandbox();
  std::string data = noise(20 << 20);
  RunResult result = must(box->run(shell("cat"), data));
  EXPECT_EQ(result.out.size(), data.size());
  EXPECT_TRUE(result.out == data);
  EXPECT_TRUE(result.status.ok());
}

TEST_F(Programs, NeedNotReadTheirInput) {
  auto box = sandbox();
  RunResult result = must(box->run(shell("echo done"), noise(4 << 20)));
  EXPECT_EQ(result.out, "done\n");
  EXPECT_TRUE(result.status.ok());
}

// Writing to a program that closed its stdin is an answer, not a signal that ends the caller.
TEST_F(Programs, WritingToAClosedStdinIsAConflict) {
  auto box = sandbox();
  Command command = shell("exec <&-; echo closed; sleep 100");
  command.stdin_mode = StdinMode::pipe;
  auto execution = start(*box, command);
  EXPECT_THAT(read_until(*execution, "closed"), HasSubstr("closed"));
  EXPECT_TRUE(failed_with(wait(execution->write_stdin(noise(1 << 20))), Errc::conflict));
  must(execution->signal(SIGKILL));
}

TEST_F(Programs, WritingWithoutAPipeIsAConflict) {
  auto box = sandbox();
  auto execution = start(*box, shell("sleep 100"));
  EXPECT_TRUE(failed_with(wait(execution->write_stdin("x")), Errc::conflict));
  must(execution->signal(SIGKILL));
}

TEST_F(Programs, StreamBothWays) {
  auto box = sandbox();
  Command command = shell("while read line; do echo \"got $line\"; done; echo bye >&2");
  command.stdin_mode = StdinMode::pipe;
  auto execution = start(*box, command);
  for (const char* word : {"one", "two", "three"}) {
    must(execution->write_stdin(std::string(word) + "\n"));
    EXPECT_EQ(read_until(*execution, "\n"), "got " + std::string(word) + "\n");
  }
  must(execution->close_stdin());
  EXPECT_EQ(read_to_end(*execution), "bye\n");
  EXPECT_TRUE(must(execution->wait()).ok());
}

// What was printed before a reply comes before it, however much that is.
TEST_F(Programs, ReplyOnStdinAfterWhatTheyPrinted) {
  auto box = sandbox();
  Command command = shell(
      "while read n; do head -c $n /dev/zero | tr '\\0' x; echo >&2 err; echo \"$n done\" >&0; "
      "done");
  command.stdin_mode = StdinMode::both_ways;
  auto execution = start(*box, command);
  for (int size : {0, 1, 60'000, 500'000}) {
    must(execution->write_stdin(std::to_string(size) + "\n"));
    std::map<OutputChunk::Stream, std::string> said;
    while (!said[OutputChunk::Stream::reply].ends_with('\n')) {
      auto chunk = must(execution->read());
      ASSERT_TRUE(chunk);
      said[chunk->stream] += chunk->data;
    }
    EXPECT_EQ(said[OutputChunk::Stream::reply], std::to_string(size) + " done\n");
    EXPECT_EQ(said[OutputChunk::Stream::out].size(), static_cast<std::size_t>(size));
    EXPECT_EQ(said[OutputChunk::Stream::err], "err\n");
  }
  must(execution->close_stdin());
  EXPECT_TRUE(must(execution->wait()).ok());
}

// A chunk comes when it was written, not when the program ends.
TEST_F(Programs, OutputComesWhileTheyRun) {
  auto box = sandbox();
  auto execution = start(*box, shell("echo first; sleep 100"));
  EXPECT_EQ(read_until(*execution, "first\n"), "first\n");
  must(execution->signal(SIGKILL));
  EXPECT_EQ(must(execution->wait()).signal, SIGKILL);
}

TEST_F(Programs, CanOpenTheirStreamsByName) {
  auto box = sandbox();
  for (const char* user : {"user", "root", "4321"}) {
    RunResult result =
        sh(*box, "echo a > /dev/stdout; echo b > /dev/stderr; echo c > /proc/self/fd/1", user);
    EXPECT_EQ(result.out, "a\nc\n") << user << result.err;
    EXPECT_EQ(result.err, "b\n") << user;
    EXPECT_EQ(must(box->run(shell("cat /dev/stdin", user), "in")).out, "in") << user;
  }
}

// ---- how they end
// --------------------------------------------------------------------------------

TEST_F(Programs, ExitCodesArePassedOn) {
  auto box = sandbox();
  for (int code : {0, 1, 2, 126, 127, 137, 255}) {
    ExitStatus status = sh(*box, "exit " + std::to_string(code)).status;
    EXPECT_EQ(status.reason, EndReason::exited) << code;
    EXPECT_EQ(status.exit_code, code);
    EXPECT_EQ(status.signal, 0);
  }
}

TEST_F(Programs, SignalsAreToldApart) {
  auto box = sandbox();
  for (int number : {SIGTERM, SIGKILL, SIGSEGV, SIGABRT, SIGHUP}) {
    ExitStatus status = sh(*box, "kill -" + std::to_string(number) + " $$").status;
    EXPECT_EQ(status.reason, EndReason::signaled) << number;
    EXPECT_EQ(status.signal, number);
    EXPECT_EQ(status.exit_code, 128 + number);
  }
}

TEST_F(Programs, ForbiddenCallsArePolicy) {
  auto box = sandbox_with_tool();
#ifdef __x86_64__
  ExitStatus status = must(box->run(tool({"forbidden"}))).status;
  EXPECT_EQ(status.reason, EndReason::policy);
  EXPECT_EQ(status.signal, SIGSYS);
#endif
}

TEST_F(Programs, NotFoundIs127) {
  auto box = sandbox();
  for (const char* name : {"/no/such/program", "nosuchprogram"}) {
    ExitStatus status = run(*box, {name}).status;
    EXPECT_EQ(status.reason, EndReason::not_started) << name;
    EXPECT_EQ(status.exit_code, 127);
    EXPECT_EQ(status.start_errno, ENOENT);
  }
}

TEST_F(Programs, NotExecutableIs126) {
  auto box = sandbox();
  must(box->write_file("/workspace/plain", "#!/bin/sh\n", 0644));
  for (auto [name, err] : {std::pair{"/workspace/plain", EACCES}, {"/workspace", EACCES}}) {
    ExitStatus status = run(*box, {name}).status;
    EXPECT_EQ(status.reason, EndReason::not_started) << name;
    EXPECT_EQ(status.exit_code, 126) << name;
    EXPECT_EQ(status.start_errno, err) << name;
  }
}

// As a shell does it.
TEST_F(Programs, ScriptWithoutAnInterpreterIsTheShells) {
  auto box = sandbox();
  must(box->write_file("/workspace/script", "echo by sh $1\n", 0755));
  EXPECT_EQ(run(*box, {"/workspace/script", "x"}).out, "by sh x\n");
}

TEST_F(Programs, NoCommandIsInvalid) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->run(Command{})), Errc::invalid));
  Command command;
  command.argv = {std::string("a\0b", 3)};
  EXPECT_TRUE(failed_with(wait(box->run(command)), Errc::invalid));
}

TEST_F(Programs, ArgumentsThatAreTooLongAreInvalid) {
  auto box = sandbox();
  Command command;
  command.argv = {"/bin/true", std::string(200 << 10, 'a')};
  auto result = wait(box->run(command));
  ASSERT_TRUE(failed_with(result, Errc::invalid));
  EXPECT_THAT(result.error().hint, HasSubstr("stdin"));
  // The longest that is allowed runs.
  command.argv[1] = std::string(100 << 10, 'a');
  EXPECT_TRUE(must(box->run(command)).status.ok());
  // Many short ones are as long as one.
  command.argv.assign(40'000, "a");
  EXPECT_TRUE(failed_with(wait(box->run(command)), Errc::invalid));
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
}

TEST_F(Programs, TellWhatTheyUsed) {
  auto box = sandbox_with_tool();
  ExitStatus status = must(box->run(tool({"burn", "200"}))).status;
  EXPECT_GE(status.cpu_user + status.cpu_system, 190ms);
  EXPECT_LE(status.cpu_user + status.cpu_system, 400ms);
  EXPECT_GE(status.wall, 190ms);
  EXPECT_GT(status.max_rss_bytes, 0U);
}

// ---- many
// ----------------------------------------------------------------------------------------

TEST_F(Programs, TwoHundredAtOnce) {
  auto box = sandbox_with_tool();
  std::vector<std::future<Result<RunResult>>> results;
  for (int i = 0; i < 200; ++i) {
    std::string number = std::to_string(i);
    results.push_back(begin(box->run(
        shell("read x; echo $x out; echo " + number + " err >&2; exit " + std::to_string(i % 7)),
        number + "\n")));
  }
  for (int i = 0; i < 200; ++i) {
    auto result = results[static_cast<std::size_t>(i)].get();
    ASSERT_TRUE(succeeded(result)) << i;
    EXPECT_EQ(result->out, std::to_string(i) + " out\n");
    EXPECT_EQ(result->err, std::to_string(i) + " err\n");
    EXPECT_EQ(result->status.exit_code, i % 7);
  }
}

TEST_F(Programs, TwoHundredAliveAtOnce) {
  auto box = sandbox();
  std::vector<ExecutionPtr> executions;
  for (int i = 0; i < 200; ++i) executions.push_back(start(*box, shell("exec sleep 100")));
  // Between fork and exec they are nobody's to look at.
  EXPECT_TRUE(eventually([&] { return must(box->processes()).size() >= 200; }));
  must(box->kill_all());
  for (const ExecutionPtr& execution : executions)
    EXPECT_EQ(must(execution->wait()).signal, SIGKILL);
}

// ---- background, signals, processes
// --------------------------------------------------------------

TEST_F(Programs, BackgroundProcessesSurviveTheCall) {
  auto box = sandbox_with_tool();
  auto started = Clock::now();
  EXPECT_TRUE(sh(*box, "/workspace/tool burn 0 >/dev/null 2>&1 &").status.ok());
  EXPECT_LT(since(started), 5s);
  ASSERT_TRUE(eventually([&] {
    auto process = find_process(*box, "burn");
    return process && process->cpu >= 100ms;
  })) << "its cpu time does not grow";
  auto process = find_process(*box, "burn");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->argv, (std::vector<std::string>{"/workspace/tool", "burn", "0"}));
  EXPECT_EQ(process->uid, 1000U);
  EXPECT_GT(process->rss_bytes, 0U);
  EXPECT_GT(process->pid, 1);
  must(box->signal_process(process->pid, SIGTERM));
  EXPECT_TRUE(eventually([&] { return !find_process(*box, "burn"); }));
}

// The child holds stdout and stderr; the call ends with the program that was asked for.
TEST_F(Programs, BackgroundChildWithTheStreamsDoesNotHoldTheCall) {
  auto box = sandbox();
  auto started = Clock::now();
  RunResult result = sh(*box, "sleep 100 & echo done");
  EXPECT_EQ(result.out, "done\n");
  EXPECT_LT(since(started), 5s);
  EXPECT_TRUE(eventually([&] { return find_process(*box, "sleep").has_value(); }));
}

TEST_F(Programs, ListShowsMemoryAndParents) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, tool({"eat", "40"}));
  read_until(*execution, "ate");
  auto process = find_process(*box, "eat");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, execution->pid());
  EXPECT_GE(process->rss_bytes, 40U << 20);
  EXPECT_LE(process->rss_bytes, 60U << 20);
  auto child = start(*box, shell("sleep 98 & wait"));
  ASSERT_TRUE(eventually([&] { return find_process(*box, "98").has_value(); }));
  EXPECT_EQ(find_process(*box, "98")->parent, child->pid());
}

TEST_F(Programs, ListIsEmptyInAFreshSandbox) {
  auto box = sandbox();
  EXPECT_THAT(must(box->processes()), testing::IsEmpty());
}

TEST_F(Programs, SignalReachesTheWholeTree) {
  auto box = sandbox_with_tool();
  auto execution = start(*box, tool({"tree"}));
  read_until(*execution, "grown");
  ASSERT_EQ(must(box->processes()).size(), 3U);
  must(execution->signal(SIGTERM));
  EXPECT_EQ(must(execution->wait()).signal, SIGTERM);
  EXPECT_TRUE(eventually([&] { return must(box->processes()).empty(); }));
}

// Also to one that has not got as far as its first instruction.
TEST_F(Programs, SignalRightAfterTheStartArrives) {
  auto box = sandbox();
  for (int i = 0; i < 100; ++i) {
    auto execution = start(*box, shell("sleep 100"));
    must(execution->signal(SIGKILL));
    auto ending = begin(execution->wait());
    if (ending.wait_for(3s) != std::future_status::ready) {
      ADD_FAILURE() << "the signal to program " << i << " was lost";
      must(box->kill_all());
    }
    EXPECT_EQ(ending.get()->signal, SIGKILL);
    if (HasFailure()) return;
  }
}

TEST_F(Programs, SignalToAnEndedProgramIsNotFound) {
  auto box = sandbox();
  auto execution = start(*box, shell("true"));
  must(execution->wait());
  EXPECT_TRUE(failed_with(wait(execution->signal(SIGTERM)), Errc::not_found));
}

TEST_F(Programs, SignalsThatMakeNoSenseAreRefused) {
  auto box = sandbox();
  auto execution = start(*box, shell("sleep 100"));
  EXPECT_TRUE(failed_with(wait(box->signal_process(execution->pid(), 1000)), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(box->signal_process(1, SIGKILL)), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(box->signal_process(0, SIGKILL)), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(box->signal_process(-1, SIGKILL)), Errc::invalid));
  EXPECT_TRUE(failed_with(wait(execution->signal(1000)), Errc::invalid));
  EXPECT_TRUE(sh(*box, "true").status.ok());
}

TEST_F(Programs, SignalToAMissingProcessIsNotFound) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->signal_process(3'000'000, SIGTERM)), Errc::not_found));
}

TEST_F(Programs, KillAllLeavesTheSandboxUsable) {
  auto box = sandbox_with_tool();
  must(box->write_file("/workspace/kept", "kept"));
  auto execution = start(*box, tool({"tree"}));
  read_until(*execution, "grown");
  sh(*box, "setsid sleep 100 >/dev/null 2>&1 &", "root");
  must(box->kill_all());
  EXPECT_EQ(must(execution->wait()).signal, SIGKILL);
  EXPECT_TRUE(eventually([&] { return must(box->processes()).empty(); }));
  EXPECT_EQ(sh(*box, "cat kept").out, "kept");
  must(box->kill_all());
}

TEST_F(Programs, DroppingAnExecutionLeavesItRunning) {
  auto box = sandbox();
  auto execution =
      start(*box, shell("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; sleep 97"));
  execution.reset();
  EXPECT_TRUE(eventually([&] { return find_process(*box, "97").has_value(); }))
      << "it did not get through its output";
}

// Dropped right after the start, and with input on its way.
TEST_F(Programs, DroppingManyExecutionsIsHarmless) {
  auto box = sandbox();
  for (int i = 0; i < 50; ++i) {
    Command command = shell("cat >/dev/null");
    command.stdin_mode = StdinMode::pipe;
    auto execution = start(*box, command);
    if (i % 2 == 0) (void)begin(execution->write_stdin("some"));
    execution.reset();
  }
  EXPECT_EQ(sh(*box, "echo fine").out, "fine\n");
}

TEST_F(Programs, LearnThatNobodyReadsThemAsFromAnyPipe) {
  auto box = sandbox();
  auto execution = start(*box, shell("(trap '' PIPE; while echo x 2>/dev/null; do :; done); "
                                     "echo told >&2; yes; echo $? >&2; exec yes"));
  must(execution->close_output(OutputChunk::Stream::out));
  EXPECT_EQ(read_to_end(*execution), "told\n141\n");
  auto status = must(execution->wait());
  EXPECT_EQ(status.reason, EndReason::signaled);
  EXPECT_EQ(status.signal, SIGPIPE);
  must(execution->close_output(OutputChunk::Stream::err));  // Twice, and too late, is harmless.
}

TEST_F(Programs, TerminalThatNobodyReadsHangsUp) {
  auto box = sandbox();
  Command command = shell("yes");
  command.terminal = TerminalSize{24, 80};
  auto execution = start(*box, command);
  read_until(*execution, "y");
  must(execution->close_output(OutputChunk::Stream::out));
  EXPECT_EQ(must(execution->wait()).signal, SIGHUP);
}

TEST_F(Programs, WaitCanBeAskedTwiceAndByTwo) {
  auto box = sandbox();
  auto execution = start(*box, shell("sleep 0.2; exit 3"));
  auto first = begin(execution->wait());
  auto second = begin(execution->wait());
  EXPECT_EQ(first.get()->exit_code, 3);
  EXPECT_EQ(second.get()->exit_code, 3);
  EXPECT_EQ(must(execution->wait()).exit_code, 3);
}

}  // namespace
}  // namespace asr::test
