// Programs that were frozen after their start, and go on in other sandboxes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "frozen/image.hpp"
#include "interpreter/kernel_process.hpp"
#include "interpreter/warm_python.hpp"
#include "kernel_test.hpp"
#include "os/memory_file.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;

class Frozen : public KernelTest {
 protected:
  WarmPython freeze(std::vector<std::string> imports = {}) {
    return must(freeze_python(sandbox(), std::move(imports)));
  }
  // A script in a sandbox of its own.
  RunResult run_script(const WarmPython& python, std::string script,
                       SandboxSpec spec = spec_of(Preset::standard),
                       std::map<std::string, std::string> env = {}) {
    auto box = sandbox(std::move(spec));
    must(box->write_file("/workspace/main.py", std::move(script), 0644, "user"));
    Command command;
    command.argv = {"python3", "/workspace/main.py", "one", "two"};
    command.env = std::move(env);
    command.frozen = python.program;
    return must(box->run(std::move(command)));
  }
  std::shared_ptr<const FrozenProgram> with_image(const WarmPython& python,
                                                  std::string_view bytes) {
    auto program = std::make_shared<FrozenProgram>();
    program->thaw = python.program->thaw;
    program->layers.push_back(
        std::make_shared<FrozenLayer>(FrozenLayer{1, bytes.size(), *sealed_copy("image", bytes)}));
    return program;
  }
};

TEST_F(Frozen, GoOnWithWhatIsTheirOwn) {
  WarmPython python = freeze();
  auto result = run_script(python, R"(
import os, sys, threading, subprocess
print(sys.argv, __name__, os.environ["OWN"], os.getcwd(), os.getuid(), "OPENBLAS_NUM_THREADS" in os.environ)
seen = []
thread = threading.Thread(target=seen.append, args=("thread",)); thread.start(); thread.join()
print(seen, subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
def deep(n): return n and 1 + deep(n - 1)
sys.setrecursionlimit(100000)
print(deep(10000), len(bytearray(64 << 20)), sum(len(str(n)) for n in range(200000)))
import atexit; atexit.register(print, "at the end")
sys.exit(7)
)",
                           spec_of(Preset::standard), {{"OWN", "variable"}});
  EXPECT_EQ(result.out,
            "['/workspace/main.py', 'one', 'two'] __main__ variable /workspace 1000 False\n"
            "['thread'] child\n10000 67108864 1088890\nat the end\n")
      << result.err;
  EXPECT_EQ(result.status.exit_code, 7);
}

TEST_F(Frozen, TellWhatWentWrongAsOthersDo) {
  WarmPython python = freeze();
  auto result = run_script(python, "def fails():\n    return 1 / 0\nfails()\n");
  EXPECT_EQ(result.status.exit_code, 1);
  EXPECT_EQ(result.err,
            "Traceback (most recent call last):\n"
            "  File \"/workspace/main.py\", line 3, in <module>\n    fails()\n"
            "  File \"/workspace/main.py\", line 2, in fails\n    return 1 / 0\n"
            "           ~~^~~\nZeroDivisionError: division by zero\n");
  EXPECT_EQ(run_script(python, "raise SystemExit('words')").err, "words\n");
}

TEST_F(Frozen, DrawNumbersOfTheirOwn) {
  WarmPython python = freeze({"numpy", "ssl", "multiprocessing", "uuid"});
  std::string script =
      "import random, ssl, tempfile, uuid, multiprocessing, numpy\n"
      "print(random.random(), numpy.random.rand(), ssl.RAND_bytes(8).hex(), uuid.uuid4(),\n"
      "      tempfile.mktemp(), multiprocessing.current_process().authkey.hex(), sep='\\n')\n";
  auto one = run_script(python, script);
  auto other = run_script(python, script);
  ASSERT_TRUE(one.status.ok()) << one.err;
  auto lines_of = [](std::istringstream text) {
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
  };
  auto mine = lines_of(std::istringstream(one.out));
  auto theirs = lines_of(std::istringstream(other.out));
  ASSERT_EQ(mine.size(), 6U) << one.out;
  ASSERT_EQ(theirs.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NE(mine[i], theirs[i]);
}

TEST_F(Frozen, AreHeldByTheLimitsOfTheirSandbox) {
  WarmPython python = freeze();
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.memory_bytes = 64 << 20;
  spec.limits.disk_bytes = 16 << 20;
  auto greedy = run_script(python, "x = [bytearray(1 << 20) for _ in range(1000)]", spec);
  EXPECT_EQ(greedy.status.reason, EndReason::out_of_memory);
  spec = spec_of(Preset::standard);
  spec.limits.wall_time = 300ms;
  EXPECT_EQ(run_script(python, "while True: pass", spec).status.reason, EndReason::wall_time);
}

TEST_F(Frozen, AreReadyAsInterpreters) {
  WarmPython python = freeze({"json"});
  KernelStart how;
  how.language = find_language("python");
  how.frozen = python.program;
  auto box = sandbox();
  auto kernel = must(start_kernel(box, how));
  EXPECT_TRUE(kernel.frozen);
  EXPECT_THAT(kernel.version, HasSubstr("3."));
  // Twice in one sandbox is no trouble.
  EXPECT_TRUE(must(start_kernel(box, how)).frozen);
}

TEST_F(Frozen, WhatCannotComeToLifeIsStarted) {
  WarmPython python = freeze();
  std::string whole(python.bytes, '\0');
  ASSERT_EQ(::pread(python.program->layers[0]->file.get(), whole.data(), whole.size(), 0),
            static_cast<ssize_t>(whole.size()));
  std::string other_kernel = whole;
  other_kernel[0] ^= 1;
  auto box = sandbox();
  for (const std::string& bytes : {std::string("not an image"), std::string(), other_kernel}) {
    Command command;
    command.argv = {"python3", "--kernel"};
    command.frozen = with_image(python, bytes);
    auto status = must(box->run(command)).status;
    // Of an empty file not even the first byte can be looked at.
    EXPECT_TRUE(status.exit_code == frozen::kExitBadImage || status.signal == SIGBUS)
        << status.exit_code;
    KernelStart how;
    how.language = find_language("python");
    how.frozen = command.frozen;
    auto kernel = must(start_kernel(box, how));
    EXPECT_FALSE(kernel.frozen);
  }
}

TEST_F(Frozen, AProgramThatIsNotAloneIsNotFrozen) {
  auto box = sandbox();
  must(box->make_directory("/workspace/lib", 0755));
  must(box->write_file("/usr/lib/python3/dist-packages/busy.py",
                       "import threading, time\n"
                       "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
                       0644, "root"));
  auto frozen = wait(freeze_python(box, {"busy"}));
  ASSERT_TRUE(failed_with(frozen, Errc::unsupported));
  EXPECT_THAT(frozen.error().what, HasSubstr("thread"));
}

TEST_F(Frozen, WhatCannotBeImportedIsTold) {
  WarmPython python = freeze({"no_such_module", "json"});
  EXPECT_THAT(python.complaints, HasSubstr("no_such_module"));
  EXPECT_TRUE(run_script(python, "import sys; assert 'json' in sys.modules").status.ok());
}

TEST_F(Frozen, NeedDescriptorsWithTheirName) {
  Command command;
  command.argv = {"python3"};
  auto empty = std::make_shared<FrozenProgram>();
  command.frozen = empty;
  EXPECT_FALSE(wait(sandbox()->start(command)));
}

TEST(WarmPython, KnowsWhatIsOnlyLookedAtWhenAProcessStarts) {
  EXPECT_TRUE(may_be_thawed({{"HOME", "/"}, {"TOKEN", "x"}}));
  EXPECT_FALSE(may_be_thawed({{"PYTHONHASHSEED", "1"}}));
  EXPECT_FALSE(may_be_thawed({{"A", "1"}, {"LD_PRELOAD", "x.so"}}));
}

}  // namespace
}  // namespace asr::test
