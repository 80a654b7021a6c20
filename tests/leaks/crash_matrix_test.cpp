// Kills an engine, its zygote or its guests at every step, by strace and by the clock, or lets
// single calls fail; after each: the next start cleans up, nothing is left within ten seconds, and
// a sandbox works.
//
// ASR_CRASH_POINTS=all tries every step; otherwise a sample that takes about a minute. The results
// go to the file ASR_CRASH_JSON names, and a table to stdout.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <random>
#include <sstream>

#include "engine/instance.hpp"
#include "os/file.hpp"
#include "os/pidfd.hpp"
#include "snapshot.hpp"
#include "support/engine_fixture.hpp"

namespace asr::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

bool want_all() {
  const char* text = std::getenv("ASR_CRASH_POINTS");
  return text != nullptr && std::string_view(text) == "all";
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASR_SANITIZED 1
#endif
#endif
#ifdef ASR_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Where strace reaches.
enum class Who { daemon, tree, sandboxes };
const char* to_string(Who who) {
  return who == Who::daemon ? "daemon" : who == Who::tree ? "tree" : "sandboxes";
}

struct Outcome {
  std::string call;
  long n = 0;
  std::string who;
  std::string ended;   // how the driver ended
  std::string result;  // "clean", or what was left
  long recover_ms = 0;
};

// A program with its output caught, ended by force when it takes too long.
struct Ran {
  int status = -1;
  bool hung = false;
  std::string out;
};

class Program {
 public:
  explicit Program(std::vector<std::string> words) {
    int out[2];
    int in[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(in, O_CLOEXEC) != 0)
      throw std::runtime_error("pipe");
    reader_ = UniqueFd(out[0]);
    writer_ = UniqueFd(in[1]);
    UniqueFd child_out(out[1]);
    UniqueFd child_in(in[0]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, child_in.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, child_out.get(), 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int err = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (err != 0) throw std::runtime_error("start " + words[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) (void)wait(0ms);
  }

  int pid() const { return pid_; }
  void go() {
    (void)!::write(writer_.get(), "\n", 1);
    writer_.reset();
  }

  // Reads until a line begins with `word`; its rest, or nothing.
  std::optional<std::string> line_with(const std::string& word, std::chrono::milliseconds most) {
    auto until = Clock::now() + most;
    while (Clock::now() < until) {
      std::istringstream lines(out_);
      for (std::string line; std::getline(lines, line);)
        if (line.starts_with(word + " ") && out_.find(line + "\n") != std::string::npos)
          return line.substr(word.size() + 1);
      if (!read_some(until)) return std::nullopt;
    }
    return std::nullopt;
  }

  Ran wait(std::chrono::milliseconds most) {
    Ran ran;
    auto until = Clock::now() + most;
    while (read_some(until)) {
    }
    for (;;) {
      if (::waitpid(pid_, &ran.status, WNOHANG) == pid_) break;
      if (Clock::now() >= until) {
        ran.hung = true;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &ran.status, 0);
        break;
      }
      std::this_thread::sleep_for(2ms);
    }
    pid_ = -1;
    ran.out = out_;
    return ran;
  }

 private:
  // False at the end of the output or of the time.
  bool read_some(Clock::time_point until) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd readable{reader_.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(std::max<long>(left.count(), 0))) <= 0) return false;
    char buffer[4096];
    ssize_t n = ::read(reader_.get(), buffer, sizeof buffer);
    if (n <= 0) return false;
    out_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }

  int pid_ = -1;
  UniqueFd reader_;
  UniqueFd writer_;
  std::string out_;
};

std::string describe(const Ran& ran) {
  if (ran.hung) return "hung";
  if (WIFSIGNALED(ran.status))
    return WTERMSIG(ran.status) == SIGKILL ? "killed"
                                           : "signal " + std::to_string(WTERMSIG(ran.status));
  switch (WEXITSTATUS(ran.status)) {
    case 0:
      return "finished";
    case 1:
      return "typed error";
    default:
      return "exit " + std::to_string(WEXITSTATUS(ran.status));
  }
}

std::vector<Outcome> outcomes;

class CrashMatrix : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) return;
    scratch_ = std::make_unique<ScratchDir>();
    scope_ = {scratch_->path() / "run", scratch_->path() / "cache", {}};
    // The environment exists before the first point: later ones differ in the call only.
    auto ran = Program(driver({"rounds=1"})).wait(60s);
    ASSERT_EQ(ran.status, 0) << ran.out;
    before_ = count_remains(scope_);
  }
  static void TearDownTestSuite() {
    scratch_.reset();
    report();
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (::access("/usr/bin/strace", X_OK) != 0) GTEST_SKIP() << "needs strace";
  }

  static std::vector<std::string> driver(const std::vector<std::string>& words = {}) {
    std::vector<std::string> all{ASR_CRASH_DRIVER, scope_.runtime_dir, scope_.cache_dir};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  static std::vector<std::string> traced(Who who, const std::string& expression,
                                         const std::vector<std::string>& words = {}) {
    std::vector<std::string> all{"strace", "-qqq", "-f", "-o", "/dev/null", "-e", expression};
    if (who == Who::daemon) all.insert(all.end(), {"-b", "execve"});
    for (std::string& word : driver(words)) all.push_back(std::move(word));
    return all;
  }

  // How often the busiest thread makes each call, in a run without any fault. The counts of strace
  // are per thread.
  static std::map<std::string, long> count_calls(Who who, const std::vector<std::string>& calls) {
    std::string list;
    for (const std::string& call : calls) list += (list.empty() ? "trace=" : ",") + call;
    fs::path log = scratch_->path() / "calls";
    std::vector<std::string> words = traced(who, list);
    words[4] = log;
    (void)Program(words).wait(60s);
    std::map<std::string, std::map<std::string, long>> counts;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream parts(line);
      std::string tid;
      std::string call;
      parts >> tid >> call;
      if (call.find('(') != std::string::npos) ++counts[call.substr(0, call.find('('))][tid];
    }
    std::map<std::string, long> most;
    for (const auto& [call, per_thread] : counts)
      for (const auto& [tid, count] : per_thread) most[call] = std::max(most[call], count);
    return most;
  }

  static std::vector<long> steps(long most, int sample) {
    std::vector<long> chosen;
    if (want_all() || most <= sample) {
      for (long n = 1; n <= most; ++n) chosen.push_back(n);
      return chosen;
    }
    for (int i = 0; i < sample; ++i) chosen.push_back(1 + (most - 1) * i / std::max(sample - 1, 1));
    return chosen;
  }

  // The next start, as after any crash. What it finds wrong goes into the outcome, and fails the
  // test.
  void recover_after(Outcome outcome, const Ran& ran, bool may_fail) {
    outcome.ended = describe(ran);
    if (ran.hung || (WIFSIGNALED(ran.status) && WTERMSIG(ran.status) != SIGKILL) ||
        (WIFEXITED(ran.status) && WEXITSTATUS(ran.status) > (may_fail ? 1 : 0)))
      outcome.result += "the driver: " + outcome.ended + "\n" + ran.out;
    if (ran.out.find("wrong ") != std::string::npos) outcome.result += ran.out;
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("instance ")) scope_.instances.insert(line.substr(9));
    (void)count_remains(scope_);  // Learns the names of those that left their folder.
    age_half_made();
    auto began = Clock::now();
    outcome.result += use_again();
    outcome.result += settle(
        before_, [] { return count_remains(scope_); }, {}, 10s);
    outcome.recover_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
    scope_.instances.clear();
    if (outcome.result.empty()) outcome.result = "clean";
    EXPECT_EQ(outcome.result, "clean")
        << outcome.call << " " << outcome.n << " " << outcome.who << " (" << outcome.ended << ")";
    outcomes.push_back(std::move(outcome));
  }

  // One that was killed before it could take its lock is given a minute. We do not wait for it.
  static void age_half_made() {
    std::error_code ec;
    for (const fs::directory_entry& entry : fs::directory_iterator(scope_.runtime_dir, ec))
      if (entry.path().filename() != "ids")
        fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - 2min, ec);
  }

  static std::string use_again() {
    EngineOptions options;
    options.runtime_dir = scope_.runtime_dir;
    options.cache_dir = scope_.cache_dir;
    options.zygotes = 1;
    try {
      TestEngine engine(options);
      std::string problems;
      for (const std::string& problem : engine->recovery().problems)
        problems += "recovery: " + problem + "\n";
      auto sandbox = engine.sandbox();
      if (engine.sh(*sandbox, "echo alive").out != "alive\n")
        problems += "a new sandbox does not work\n";
      engine.stop();
      return problems;
    } catch (const std::exception& error) {
      return std::string("a new engine does not work: ") + error.what() + "\n";
    }
  }

  void kill_at(Who who, const std::string& call, long n) {
    std::string inject = "inject=" + call + ":signal=KILL:when=" + std::to_string(n);
    Ran ran = Program(traced(who, inject)).wait(25s);
    recover_after({call, n, to_string(who), "", "", 0}, ran, who != Who::daemon);
  }

  // strace follows the zygote of a working engine and what it makes: the engine itself lives.
  void kill_in_sandbox(const std::string& call, long n) {
    Program engine(driver({"wait"}));
    auto children = engine.line_with("children", 20s);
    ASSERT_TRUE(children) << "the driver made no zygote";
    std::string zygote = children->substr(0, children->find(' '));
    std::string inject = "inject=" + call + ":signal=KILL:when=" + std::to_string(n);
    Program tracer({"strace", "-qqq", "-f", "-o", "/dev/null", "-e", inject, "-p", zygote});
    wait_until_traced(zygote);
    engine.go();
    Ran ran = engine.wait(25s);
    (void)tracer.wait(5s);
    recover_after({call, n, to_string(Who::sandboxes), "", "", 0}, ran, true);
  }

  static void wait_until_traced(const std::string& pid) {
    for (int i = 0; i < 500; ++i) {
      auto status = read_small_file(AT_FDCWD, "/proc/" + pid + "/status");
      if (status && status->find("TracerPid:\t0") == std::string::npos) return;
      std::this_thread::sleep_for(2ms);
    }
  }

  static void report() {
    std::cout << std::left << std::setw(20) << "call" << std::setw(7) << "n" << std::setw(11)
              << "who" << std::setw(13) << "driver" << std::setw(9) << "ms"
              << "result\n";
    for (const Outcome& o : outcomes)
      std::cout << std::setw(20) << o.call << std::setw(7) << o.n << std::setw(11) << o.who
                << std::setw(13) << o.ended << std::setw(9) << o.recover_ms
                << o.result.substr(0, o.result.find('\n')) << "\n";
    const char* path = std::getenv("ASR_CRASH_JSON");
    if (path == nullptr) return;
    std::ofstream json(path);
    json << "[";
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& o = outcomes[i];
      json << (i == 0 ? "\n" : ",\n") << R"(  {"call": )" << std::quoted(o.call) << R"(, "n": )"
           << o.n << R"(, "who": )" << std::quoted(o.who) << R"(, "driver": )"
           << std::quoted(o.ended) << R"(, "result": )"
           << std::quoted(o.result == "clean" ? "clean" : "left") << R"(, "recover_ms": )"
           << o.recover_ms << "}";
    }
    json << "\n]\n";
  }

  static std::unique_ptr<ScratchDir> scratch_;
  static Scope scope_;
  static Counts before_;
};
std::unique_ptr<ScratchDir> CrashMatrix::scratch_;
Scope CrashMatrix::scope_;
Counts CrashMatrix::before_;

TEST_F(CrashMatrix, TheDaemonIsKilledAtACall) {
  const std::vector<std::string> calls{
      "mkdir",    "mkdirat", "openat", "write",  "sendmsg",           "recvmsg",
      "unlinkat", "rmdir",   "flock",  "rename", "pidfd_send_signal", "clone3"};
  auto most = count_calls(Who::daemon, calls);
  for (const std::string& call : calls)
    for (long n : steps(most[call], 2)) kill_at(Who::daemon, call, n);
}

// Counts per thread: the first of them all to come so far is killed, be it daemon, zygote or guest.
TEST_F(CrashMatrix, SomebodyIsKilledAtACall) {
  const std::vector<std::string> calls{"mount", "pivot_root", "unshare", "prctl", "mount_setattr"};
  auto most = count_calls(Who::tree, calls);
  for (const std::string& call : calls)
    for (long n : steps(most[call], 2)) kill_at(Who::tree, call, n);
}

TEST_F(CrashMatrix, AZygoteOrGuestIsKilledAtACall) {
  const std::map<std::string, long> calls{{"clone3", 2},     {"recvmsg", 4}, {"sendmsg", 6},
                                          {"write", 4},      {"mount", 20},  {"openat", 6},
                                          {"setns", 1},      {"execve", 1},  {"mkdir", 6},
                                          {"pivot_root", 1}, {"capset", 2},  {"seccomp", 1}};
  for (const auto& [call, most] : calls)
    for (long n : steps(most, 1)) kill_in_sandbox(call, n);
}

std::mt19937& dice() {
  static const unsigned seed = [] {
    const char* text = std::getenv("ASR_CRASH_SEED");
    unsigned chosen =
        text != nullptr ? static_cast<unsigned>(std::atol(text)) : std::random_device()();
    std::cout << "ASR_CRASH_SEED=" << chosen << "\n";
    return chosen;
  }();
  static std::mt19937 generator(seed);
  return generator;
}

TEST_F(CrashMatrix, TheDaemonIsKilledAtAnyMoment) {
  for (int i = 0; i < (want_all() ? 200 : 8); ++i) {
    long ms = static_cast<long>(dice()() % 400);
    Program engine(driver({"rounds=1000"}));
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    ::kill(engine.pid(), SIGKILL);
    recover_after({"after ms", ms, "daemon", "", "", 0}, engine.wait(10s), false);
  }
}

TEST_F(CrashMatrix, TheZygoteIsKilledAtAnyMoment) {
  for (int i = 0; i < (want_all() ? 200 : 8); ++i) {
    Program engine(driver({"wait", "rounds=6"}));
    auto children = engine.line_with("children", 20s);
    ASSERT_TRUE(children);
    auto zygote = open_pidfd(std::stoi(*children));
    ASSERT_TRUE(zygote);
    long ms = static_cast<long>(dice()() % 100);
    engine.go();
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    (void)send_signal(zygote->get(), SIGKILL);
    recover_after({"after ms", ms, "zygote", "", "", 0}, engine.wait(25s), true);
  }
}

TEST_F(CrashMatrix, AFullDiskIsATypedError) {
  std::vector<std::string> calls{"mkdir", "mkdirat", "rename"};
  // A sanitizer looks at memory by writing it to a pipe, and takes any failure for its own.
  if (!kSanitized) calls.emplace_back("write");
  auto most = count_calls(Who::daemon, calls);
  for (const std::string& call : calls)
    for (long n : steps(most[call], 3)) {
      std::string inject = "inject=" + call + ":error=ENOSPC:when=" + std::to_string(n);
      Ran ran = Program(traced(Who::daemon, inject)).wait(25s);
      recover_after({call + " ENOSPC", n, "daemon", "", "", 0}, ran, true);
    }
}

// From too few descriptors for an engine to enough for some sandboxes: each shortage is met at
// another line.
TEST_F(CrashMatrix, TooFewDescriptorsAreATypedError) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors of its own to look at memory";
  std::vector<long> limits{64};
  for (long n = 8; n <= 40; n += want_all() ? 1 : 4) limits.push_back(n);
  for (long n : limits) {
    Ran ran = Program(driver({"hold=40", "rounds=1", "nofile=" + std::to_string(n)})).wait(40s);
    recover_after({"nofile", n, "daemon", "", "", 0}, ran, true);
  }
}

}  // namespace
}  // namespace asr::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  asr::test::mark_descendants();
  // For the drivers. Leaks are not looked for in a traced process; what a sanitizer finds must not
  // look like a typed error.
  ::setenv("ASAN_OPTIONS", "detect_leaks=0:exitcode=99", 1);
  ::setenv("UBSAN_OPTIONS", "exitcode=99", 1);
  return RUN_ALL_TESTS();
}
