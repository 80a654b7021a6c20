#include "harness.hpp"

#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/id.hpp"

extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));
extern "C" char** environ;

namespace asr::escape {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Errors that say "this kernel has no such thing" rather than "you may not".
bool lacking(const std::string& err) {
  for (const char* name : {"ENOSYS", "ENODEV", "ENXIO", "EAFNOSUPPORT", "EPROTONOSUPPORT",
                           "ESOCKTNOSUPPORT", "EOPNOTSUPP"})
    if (err == name) return true;
  return false;
}

struct Output {
  std::string text;
  int status = -1;
};

// The program's standard output; after `patience` it is killed.
Output output_of(const Args& argv, std::chrono::milliseconds patience) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  UniqueFd in(ends[0]), out(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), 1);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& arg : argv) arguments.push_back(const_cast<char*>(arg.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  int err = ::posix_spawn(&child, argv[0].c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  out.reset();
  if (err != 0) return {};

  Output output;
  auto deadline = Clock::now() + patience;
  std::array<char, 8192> block{};
  for (;;) {
    auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{in.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    ssize_t size = ::read(in.get(), block.data(), block.size());
    if (size <= 0) break;
    output.text.append(block.data(), static_cast<std::size_t>(size));
  }
  ::waitpid(child, &output.status, 0);
  return output;
}

// Neither gone, nor a zombie, nor on its way out (PF_EXITING): something that could still run code.
bool can_run(int pid) {
  std::string stat = read_host_file("/proc/" + std::to_string(pid) + "/stat");
  std::size_t end = stat.rfind(')');
  if (end == std::string::npos) return false;
  std::istringstream fields(stat.substr(end + 2));
  std::string state, skipped;
  unsigned long flags = 0;
  fields >> state;
  for (int i = 0; i < 5; ++i) fields >> skipped;
  fields >> flags;
  return state != "Z" && state != "X" && (flags & 0x4) == 0;
}

std::size_t count_entries(const fs::path& directory) {
  std::error_code ec;
  fs::directory_iterator it(directory, ec);
  return ec ? 0 : static_cast<std::size_t>(std::distance(fs::begin(it), fs::end(it)));
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string describe(const Attempt& attempt) {
  return attempt.what + " (as " + attempt.as + ")" +
         (attempt.err.empty() ? "" : " " + attempt.err) +
         (attempt.detail.empty() ? "" : ": " + attempt.detail);
}

asio::awaitable<void> keep_asking(std::shared_ptr<Neighbour> neighbour) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (!neighbour->stop) {
    auto start = Clock::now();
    Command command;
    command.argv = {"/bin/true"};
    Result<RunResult> result = co_await neighbour->sandbox->run(std::move(command));
    auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    ++neighbour->runs;
    neighbour->worst = std::max(neighbour->worst, took);
    if (!result || !result->status.ok()) {
      ++neighbour->errors;
      if (neighbour->first_error.empty())
        neighbour->first_error =
            result ? std::string(to_string(result->status.reason)) : result.error().what;
    }
    timer.expires_after(100ms);
    co_await timer.async_wait(asio::use_awaitable);
  }
  neighbour->stopped = true;
}

asio::awaitable<Result<void>> sleep_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
  co_return Result<void>();
}

}  // namespace

std::size_t daemon_memory() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
  std::string status = read_host_file("/proc/self/statm");
  std::istringstream fields(status);
  std::size_t pages = 0, resident = 0;
  fields >> pages >> resident;
  return resident * 4096;
}

std::size_t daemon_descriptors() { return count_entries("/proc/self/fd"); }

long host_number(const std::string& path, long otherwise) {
  std::istringstream in(read_host_file(path));
  long value = 0;
  return in >> value ? value : otherwise;
}

std::size_t host_processes_named(const std::string& token) {
  std::size_t found = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos ||
        name == std::to_string(::getpid()))
      continue;
    if (read_host_file(entry.path() / "cmdline").find(token) != std::string::npos) ++found;
  }
  return found;
}

void Escape::SetUp() {
  began_ = Clock::now();
  if (::geteuid() != 0)
    GTEST_SKIP() << "attacks are proven by root of the machine; run the suite as root";
  plant_canaries();
  Result<std::unique_ptr<Engine>> engine = Engine::start(context_.get_executor(), options());
  ASSERT_TRUE(engine) << engine.error().what;
  engine_ = std::move(*engine);
  Result<SandboxPtr> first =
      sync(engine_->create(standard()));  // What is opened once is open from here on.
  ASSERT_TRUE(first) << first.error().what;
  ASSERT_TRUE(sync((*first)->destroy()));
  first->reset();
  let_pass(50ms);
  before_ = snapshot();
}

// Secrets that must stay outside: in the environment, in a file, in the session keyring of the
// daemon.
void Escape::plant_canaries() {
  secret_ = "canary-" + random_name(24);
  ::setenv("ASR_CANARY", secret_.c_str(), 1);
  std::string directory = (fs::temp_directory_path() / "agent-sandbox-escape-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  secret_file_ = directory + "/canary";
  std::ofstream(secret_file_) << secret_ << "\n";
  fs::permissions(secret_file_, fs::perms::owner_read);
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0)
    (void)::syscall(SYS_add_key, "user", "asr-canary", secret_.data(), secret_.size(),
                    KEY_SPEC_SESSION_KEYRING);
}

void Escape::TearDown() {
  for (const std::shared_ptr<Neighbour>& one : neighbours_) one->stop = true;
  if (engine_) {
    let_pass(250ms);
    for (SandboxPtr& sandbox : sandboxes_)
      if (sandbox->state() != SandboxState::gone) (void)sync(sandbox->destroy());
    neighbours_.clear();
    sandboxes_.clear();
    if (before_) {  // What is cleaned in the background may take a moment.
      Snapshot after = snapshot();
      auto settled = [&] {
        return after.descriptors <= before_->descriptors + 2 && after.groups <= before_->groups &&
               after.mounts <= before_->mounts;
      };
      for (int i = 0; i < 50 && !settled(); ++i) {
        let_pass(100ms);
        after = snapshot();
      }
      must(after.descriptors <= before_->descriptors + 2,
           "the daemon leaks descriptors: " + std::to_string(before_->descriptors) + " before, " +
               std::to_string(after.descriptors) + " after");
      must(after.groups <= before_->groups,
           "cgroups stay behind: " + std::to_string(after.groups - before_->groups));
      must(after.mounts <= before_->mounts,
           "mounts stay behind: " + std::to_string(after.mounts - before_->mounts));
      must(after.children <= before_->children, "processes stay behind");
      must(after.shared_memory <= before_->shared_memory, "SysV shared memory stays behind");
    }
    (void)sync(engine_->stop());
    engine_.reset();
  }
  if (!secret_file_.empty()) fs::remove_all(fs::path(secret_file_).parent_path());
  if (record_.name.empty()) return;
  record_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  if (HasFailure()) {
    record_.outcome = Outcome::breached;
    if (record_.reason.empty()) record_.reason = "see the test's output";
  } else if (!excused_ && record_.proven == 0) {
    record_.outcome = Outcome::not_provable;
    record_.reason =
        record_.unproven.empty() ? "nothing of it was run outside" : record_.unproven.front();
  }
  keep(record_);
}

void Escape::begin(std::string name, std::string title) {
  record_.name = std::move(name);
  record_.title = std::move(title);
}

void Escape::not_applicable(std::string reason) {
  excused_ = true;
  record_.outcome = Outcome::not_applicable;
  record_.reason = std::move(reason);
}

void Escape::must(bool holds, const std::string& what) {
  if (holds) return;
  if (record_.reason.empty()) record_.reason = what;
  ADD_FAILURE() << record_.name << ": " << what;
}

void Escape::prove(const std::string& probe_case, const Args& args) {
  Args argv = {ASR_ESCAPE_PROBES, "--outside", probe_case};
  argv.insert(argv.end(), args.begin(), args.end());
  Output output = output_of(argv, 60s);
  std::string no_box;
  for (const Attempt& attempt : parse_attempts(output.text, "outside", no_box)) {
    if (attempt.kind == "note") continue;
    if (attempt.succeeded) {
      if (attempt.kind == "attack") ++record_.proven;
      continue;
    }
    std::string why = attempt.unprovable;
    if (why.empty() && lacking(attempt.err)) why = "this kernel has none: " + attempt.err;
    EXPECT_FALSE(why.empty()) << "works nowhere, so it proves nothing: " << describe(attempt);
    record_.unproven.push_back(attempt.what + ": " + why);
  }
  if (!no_box.empty()) record_.unproven.push_back(no_box);
  EXPECT_TRUE(!no_box.empty() || (WIFEXITED(output.status) && WEXITSTATUS(output.status) == 0))
      << "the probe did not end by itself outside: " << output.text.substr(0, 500);
  record_.outside_succeeded = record_.proven > 0;
}

void Escape::judge(const std::vector<Attempt>& attempts) {
  for (const Attempt& attempt : attempts) {
    ++record_.attempts;
    if (attempt.kind == "attack")
      must(!attempt.succeeded, "succeeded inside: " + describe(attempt));
    if (attempt.kind == "needed")
      must(attempt.succeeded, "does not work inside: " + describe(attempt));
  }
}

void Escape::attack(const SandboxPtr& sandbox, const std::string& probe_case, const Args& args) {
  attack_as("root", sandbox, probe_case, args);
  attack_as("user", sandbox, probe_case, args);
}

void Escape::attack_as(const std::string& user, const SandboxPtr& sandbox,
                       const std::string& probe_case, const Args& args, Command command) {
  std::vector<Attempt> attempts = probe(sandbox, user, probe_case, args, std::move(command));
  EXPECT_FALSE(attempts.empty()) << probe_case << " said nothing as " << user;
  judge(attempts);
}

Result<std::string> Escape::probe_binary() {
  static const std::string binary = read_host_file(ASR_ESCAPE_PROBES);
  if (binary.empty()) return fail(Errc::not_found, "there is no probe at " ASR_ESCAPE_PROBES);
  return binary;
}

SandboxPtr Escape::make(SandboxSpec spec) {
  Result<SandboxPtr> sandbox = sync(engine_->create(std::move(spec)));
  if (!sandbox)
    throw std::runtime_error("create: " +
                             sandbox.error().what);  // Nothing after this could mean anything.
  sandboxes_.push_back(*sandbox);
  Result<std::string> binary = probe_binary();
  EXPECT_TRUE(binary) << binary.error().what;
  Result<void> written = sync((*sandbox)->write_file(kProbe, *binary, 0755));
  EXPECT_TRUE(written) << written.error().what;
  return *sandbox;
}

RunResult Escape::run(const SandboxPtr& sandbox, const std::string& user, Args argv,
                      Command command) {
  command.argv = std::move(argv);
  command.user = user;
  if (!command.wall_time) command.wall_time = 90s;
  Result<RunResult> result = sync(sandbox->run(std::move(command)), 100s);
  if (!result) {
    must(false, "run: " + result.error().what);
    return {};
  }
  return *std::move(result);
}

std::vector<Attempt> Escape::probe(const SandboxPtr& sandbox, const std::string& user,
                                   const std::string& probe_case, const Args& args,
                                   Command command) {
  Args argv = {kProbe, probe_case};
  argv.insert(argv.end(), args.begin(), args.end());
  RunResult result = run(sandbox, user, std::move(argv), std::move(command));
  // An attack on memory may take the probe with it: that is an answer too.
  bool ended = result.status.ok() || result.status.reason == EndReason::out_of_memory;
  EXPECT_TRUE(ended) << probe_case << " as " << user << ": " << to_string(result.status.reason)
                     << " " << result.status.exit_code << " "
                     << std::strerror(result.status.start_errno) << " "
                     << result.err.substr(0, 500);
  std::string no_box;
  std::vector<Attempt> attempts = parse_attempts(result.out, user, no_box);
  if (result.status.reason == EndReason::out_of_memory)
    attempts.push_back({.what = "the rest of " + probe_case,
                        .kind = "attack",
                        .err = "out of memory",
                        .detail = {},
                        .unprovable = {},
                        .as = user});
  return attempts;
}

std::unique_ptr<Execution> Escape::start(const SandboxPtr& sandbox, const std::string& user,
                                         const std::string& probe_case, const Args& args) {
  Command command;
  command.argv = {kProbe, probe_case};
  command.argv.insert(command.argv.end(), args.begin(), args.end());
  command.user = user;
  command.wall_time = 90s;
  Result<std::unique_ptr<Execution>> execution = sync(sandbox->start(std::move(command)));
  EXPECT_TRUE(execution) << execution.error().what;
  return execution ? *std::move(execution) : nullptr;
}

std::string Escape::read_until(Execution& execution, const std::string& text,
                               std::chrono::milliseconds patience) {
  std::string all;
  auto deadline = Clock::now() + patience;
  while (all.find(text) == std::string::npos && Clock::now() < deadline) {
    Result<std::optional<OutputChunk>> chunk = sync(execution.read(), patience);
    if (!chunk || !*chunk) break;
    all += (*chunk)->data;
  }
  return all;
}

void Escape::expect_alive(const SandboxPtr& sandbox, const std::string& after) {
  // Alive, not quick: on a machine full of processes an answer may take its time.
  Result<void> ping = sync(sandbox->ping(), 10s);
  for (int again = 0; !ping && again < 10; ++again) ping = sync(sandbox->ping(), 10s);
  must(ping.has_value(), "no answer after " + after + ": " + (ping ? "" : ping.error().what));
  RunResult result = run(sandbox, "user", {"/bin/true"});
  must(result.status.ok(),
       "cannot run a program after " + after + ": " + std::string(to_string(result.status.reason)));
}

std::chrono::milliseconds Escape::destroy(SandboxPtr& sandbox) {
  int pid = sandbox->host_pid();
  auto start = Clock::now();
  Result<void> result = sync(sandbox->destroy());
  auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  must(result.has_value(), "destroy: " + (result ? "" : result.error().what));
  must(!can_run(pid), "pid 1 of a destroyed sandbox lives: " +
                          read_host_file("/proc/" + std::to_string(pid) + "/stat"));
  must(took < 5s, "destroy took " + std::to_string(took.count()) + " ms");
  std::erase(sandboxes_, sandbox);
  sandbox.reset();
  return took;
}

std::shared_ptr<Neighbour> Escape::neighbour() {
  auto one = std::make_shared<Neighbour>();
  one->sandbox = make();
  neighbours_.push_back(one);
  asio::co_spawn(context_, keep_asking(one), asio::detached);
  return one;
}

void Escape::expect_undisturbed(const std::shared_ptr<Neighbour>& one) {
  must(one->runs > 0, "the neighbour was never asked");
  must(one->errors == 0,
       "the neighbour had " + std::to_string(one->errors) + " errors: " + one->first_error);
  must(one->worst < 5s, "the neighbour waited " + std::to_string(one->worst.count()) + " ms");
}

void Escape::let_pass(std::chrono::milliseconds time) { (void)sync(sleep_for(time), time + 5s); }

std::string Escape::group_file(const SandboxPtr& sandbox, const std::string& controller,
                               const std::string& file) const {
  std::string own =
      test::group_of(sandbox ? sandbox->host_pid() : sandboxes_.at(0)->host_pid(), controller);
  if (own.empty()) return "";
  // Without a sandbox, the group of all of them.
  fs::path path = sandbox ? fs::path(own) / file : fs::path(own).parent_path() / file;
  return fs::exists(path) ? path.native() : "";
}

Snapshot Escape::snapshot() const {
  Snapshot now;
  now.descriptors = daemon_descriptors();
  now.mounts = count_lines(read_host_file("/proc/self/mountinfo"));
  now.shared_memory = count_lines(read_host_file("/proc/sysvipc/shm"));
  std::istringstream children(
      read_host_file("/proc/self/task/" + std::to_string(::getpid()) + "/children"));
  for (std::string pid; children >> pid;) ++now.children;
  if (!engine_) return now;
  now.groups = test::groups_of(engine_->instance_dir().filename(), true).size();
  return now;
}

}  // namespace asr::escape

// The table, once, after the last test.
namespace {
class TablePrinter : public testing::Environment {
 public:
  void TearDown() override { std::fputs(asr::escape::table().c_str(), stdout); }
};
[[maybe_unused]] const auto* g_table = testing::AddGlobalTestEnvironment(new TablePrinter);
}  // namespace
