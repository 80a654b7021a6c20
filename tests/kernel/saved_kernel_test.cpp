// Interpreters that live, saved as they stand, and others that go on from there.
#include "interpreter/saved_kernel.hpp"

#include <unistd.h>

#include "frozen/image.hpp"
#include "interpreter/kernel_process.hpp"
#include "interpreter/warm_python.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class SavedKernels : public KernelTest {
 protected:
  using Talk = std::shared_ptr<KernelTalk>;

  Talk start(std::shared_ptr<Sandbox> box, std::shared_ptr<const FrozenProgram> frozen = nullptr) {
    KernelStart how;
    how.language = find_language("python");
    how.frozen = std::move(frozen);
    auto wanted = how.frozen;
    boxes_.push_back(box);
    auto kernel = must(start_kernel(std::move(box), how));
    EXPECT_EQ(kernel.frozen, wanted) << "it was started instead";
    return std::make_shared<KernelTalk>(
        KernelTalk{kernel.process, std::move(kernel.events), kernel.frozen});
  }
  // What a cell prints and shows.
  std::string run(const Talk& talk, const std::string& code) {
    must(talk->process->write_stdin(kernel_request("execute", ++number_, code)));
    std::string said;
    for (;;) {
      while (auto event = must_value(talk->events.next())) {
        if (event->id != number_) continue;
        if (event->kind == KernelEvent::Kind::done) return said;
        said += to_text(event->fields);
      }
      auto chunk = must(talk->process->read());
      if (!chunk) return said + " (ended)";
      if (chunk->stream == OutputChunk::Stream::reply)
        EXPECT_TRUE(talk->events.feed(chunk->data));
      else
        said += chunk->data;
    }
  }
  SavedKernel save(const Talk& talk) { return must(save_kernel(talk, ++number_)); }
  Talk go_on(const SavedKernel& saved, std::shared_ptr<Sandbox> box = nullptr) {
    return start(box ? std::move(box) : sandbox(), saved.program);
  }

  template <class T>
  static T must_value(Result<T> result) {
    EXPECT_TRUE(result) << result.error().what;
    return std::move(*result);
  }

  std::uint64_t number_ = 0;
  std::vector<std::shared_ptr<Sandbox>> boxes_;  // They end with their last holder.
};

TEST_F(SavedKernels, GoOnWithTheirVariablesElsewhere) {
  auto warm = must(freeze_python(sandbox(), {}));
  for (const auto& frozen : {warm.program, std::shared_ptr<const FrozenProgram>()}) {
    auto first = start(sandbox(), frozen);
    run(first,
        "import random, json\nx = list(range(100000))\nrandom.seed(7)\n"
        "def count():\n    n = 0\n    while True:\n        n += 1\n        yield n\n"
        "c = count(); next(c); next(c)");
    SavedKernel saved = save(first);
    EXPECT_EQ(saved.threads, 0U);
    EXPECT_THAT(saved.files, IsEmpty());
    EXPECT_EQ(run(first, "print(sum(x), next(c), random.random() < 2)"), "4999950000 3 True\n");
    auto second = go_on(saved);
    auto third = go_on(saved);
    EXPECT_EQ(run(second, "print(sum(x), next(c))"), "4999950000 3\n");
    EXPECT_EQ(run(third, "print(sum(x), next(c))"), "4999950000 3\n");
    EXPECT_EQ(run(second, "print(random.random())"), run(third, "print(random.random())"));
    run(second, "x.clear()");
    EXPECT_EQ(run(third, "print(len(x))"), "100000\n");
    EXPECT_EQ(run(first, "print(len(x))"), "100000\n");
  }
}

TEST_F(SavedKernels, AreSavedAgainAndAgain) {
  auto warm = must(freeze_python(sandbox(), {}));
  auto kernel = start(sandbox(), warm.program);
  run(kernel, "big = bytearray(b'x' * (64 << 20))\nlog = []");
  SavedKernel saved;
  for (int i = 0; i < 12; ++i) {
    std::string n = std::to_string(i);
    run(kernel, "log.append(" + n + "); big[" + n + " << 20] = " + n);
    saved = save(kernel);
    // What has not changed since is not written again.
    if (i == 1) EXPECT_LT(saved.bytes, 40U << 20);
    ASSERT_LE(saved.program->layers.size(), frozen::kMostLayers);
    if (i % 2 == 0) kernel = go_on(saved);
  }
  EXPECT_EQ(run(kernel, "print(log, big[11 << 20], big[3 << 20], big[100], len(big))"),
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] 11 3 120 67108864\n");
}

TEST_F(SavedKernels, HaveTheirFilesFolderAndTimers) {
  auto kernel = start(sandbox());
  run(kernel, R"(
import os, signal, socket
os.chdir("/usr"); os.umask(0o27)
f = open("/etc/passwd"); first = f.readline()
d = os.open("/usr", os.O_RDONLY | os.O_DIRECTORY)
s = socket.socket(); r, w = os.pipe()
gone = open("/workspace/gone", "w+"); gone.write("x"); gone.flush(); os.unlink("/workspace/gone")
os.environ["OWN"] = "mine"
signal.signal(signal.SIGALRM, lambda *a: print("alarm"))
)");
  SavedKernel saved = save(kernel);
  EXPECT_THAT(saved.files, testing::SizeIs(4));
  std::string rest = run(kernel, "print(len(f.read()), os.getcwd(), os.umask(0o27))");
  auto other = go_on(saved);
  EXPECT_EQ(run(other, "print(len(f.read()), os.getcwd(), os.umask(0o27))"), rest);
  EXPECT_EQ(run(other, "print(os.environ['OWN'], 'bin' in os.listdir(d))"), "mine True\n");
  EXPECT_THAT(run(other, "s.connect(('127.0.0.1', 1))"), HasSubstr("OSError"));
  EXPECT_THAT(run(other, "os.write(w, b'x')"), HasSubstr("OSError"));
  EXPECT_THAT(
      run(other, "import time; signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.2)"),
      HasSubstr("alarm"));
}

TEST_F(SavedKernels, AreSavedWithoutTheirThreads) {
  auto kernel = start(sandbox());
  run(kernel,
      "import threading, time\nstop = threading.Event()\n"
      "t = threading.Thread(target=stop.wait, daemon=True); t.start()\nx = 5");
  SavedKernel saved = save(kernel);
  EXPECT_EQ(saved.threads, 1U);
  EXPECT_EQ(run(kernel, "print(t.is_alive())"), "True\n");
  auto other = go_on(saved);
  EXPECT_EQ(run(other, "print(x, t.is_alive(), threading.active_count())"), "5 False 1\n");
  EXPECT_EQ(run(other, "u = threading.Thread(target=print, args=('new',)); u.start(); u.join()"),
            "new\n");
}

TEST_F(SavedKernels, ThoseWhoShareTheirMemoryCannotBeSaved) {
  auto kernel = start(sandbox());
  run(kernel, "import mmap\nm = mmap.mmap(-1, 4096); m[0] = 7");
  auto saved = wait(save_kernel(kernel, ++number_));
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, Errc::unsupported);
  EXPECT_EQ(run(kernel, "print(m[0])"), "7\n");
}

// The program interrupts itself at the worst of moments: the file it waits for is on its way.
TEST_F(SavedKernels, SignalsWaitMeanwhile) {
  for (const char* more : {"",
                           "import threading; threading.Thread(target=threading.Event().wait, "
                           "daemon=True).start()"}) {
    auto kernel = start(sandbox());
    run(kernel, R"(
import os, signal
channel = display.__self__.channel
say, seen = channel.say, []
def loud(event, **fields):
    say(event, **fields)
    if event == "saving":
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGINT)
channel.say = loud
signal.signal(signal.SIGUSR1, lambda *a: seen.append(1))
)");
    run(kernel, more);
    SavedKernel saved = save(kernel);
    std::string look = "print(seen, signal.getsignal(2) == signal.default_int_handler)";
    EXPECT_EQ(run(kernel, look), "[1] True\n") << more;
    auto other = go_on(saved);
    EXPECT_EQ(run(other, look), "[] True\n") << "that was not sent to this one: " << more;
    EXPECT_THAT(run(other, "os.kill(os.getpid(), signal.SIGINT)"), HasSubstr("KeyboardInterrupt"));
  }
}

TEST_F(SavedKernels, MayHaveMoreMemoryThanDisk) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.limits.memory_bytes = 400ULL << 20;
  spec.limits.disk_bytes = 32ULL << 20;
  auto kernel = start(sandbox(spec));
  run(kernel, "big = bytearray(b'x' * (80 << 20))");
  SavedKernel saved = save(kernel);
  EXPECT_GT(saved.bytes, 80U << 20);
  EXPECT_EQ(run(go_on(saved, sandbox(spec)), "print(len(big), big[-1])"), "83886080 120\n");
}

// Numbers of files are those of one file system.
TEST_F(SavedKernels, FilesOfTwoDisksAreTwo) {
  if (::access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs loop devices";
  options().storage_dir = scratch() / "storage";
  SandboxSpec spec = spec_of(Preset::standard);
  spec.disk = PersistentDisk{"d"};
  spec.limits.disk_bytes = 64ULL << 20;
  auto box = sandbox(spec);
  auto kernel = start(box);
  ASSERT_EQ(run(kernel, R"(
import mmap, os
def number_of(path, text):
    with open(path, "w") as file:
        file.write(text * 4096)
    return os.stat(path).st_ino
disk = {number_of(f"/workspace/{i}", "d"): f"/workspace/{i}" for i in range(300)}
memory = {number_of(f"/tmp/{i}", "m"): f"/tmp/{i}" for i in range(300)}
both = (disk.keys() & memory.keys()).pop()
def mapped(path):
    with open(path) as file:
        return mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
pairs = [(mapped(disk[both]), mapped(memory[both])) for _ in range(8)]
)"),
            "");
  SavedKernel saved = save(kernel);
  EXPECT_EQ(run(go_on(saved, box), "print({(d[:1], m[:1]) for d, m in pairs})"),
            "{(b'd', b'm')}\n");
}

TEST_F(SavedKernels, NativeLibrariesComeAlong) {
  auto kernel = start(sandbox());
  if (run(kernel, "import numpy").find("ModuleNotFoundError") != std::string::npos)
    GTEST_SKIP() << "no numpy here";
  run(kernel, "a = numpy.arange(1000000).reshape(1000, 1000); b = a @ a.T.astype(float)");
  SavedKernel saved = save(kernel);
  auto other = go_on(saved);
  EXPECT_EQ(run(other, "print((a @ a.T.astype(float) == b).all(), int(a.sum()))"),
            "True 499999500000\n");
}

}  // namespace
}  // namespace asr::test
