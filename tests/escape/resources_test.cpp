// R01-R25: one sandbox takes what it can get. Its limits hold, its neighbour and the daemon notice
// nothing.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/id.hpp"
#include "harness.hpp"

namespace asr::escape {

namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kDaemonGrowth =
    32 * kMiB;  // The most a misbehaving program may cost the daemon.

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Of the whole machine: what the buffers of all TCP connections take.
long tcp_pages() {
  std::string stat = read_host_file("/proc/net/sockstat");
  std::size_t line = stat.find("TCP: "), at = stat.find(" mem ", line);
  return line == std::string::npos || at == std::string::npos ? 0 : std::atol(&stat[at + 5]);
}

std::size_t kernel_log_lines() {
  UniqueFd log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::size_t lines = 0;
  std::array<char, 8192> record{};
  while (log && (::read(log.get(), record.data(), record.size()) > 0 || errno == EPIPE)) ++lines;
  return lines;
}

}  // namespace

class Resources : public Escape {
 protected:
  // The neighbour and the host still get one of everything while `holder` keeps all it could take.
  void expect_budgets_apart(const std::string& holder) {
    SandboxPtr greedy = make(), other = make();
    std::unique_ptr<Execution> execution = start(greedy, "root", holder);
    ASSERT_TRUE(execution);
    std::string said = read_until(*execution, "holding", 20s);
    EXPECT_NE(said.find("holding"), std::string::npos) << said;
    std::string context = " (while another sandbox is " + said.substr(0, said.find('\n')) + ")";
    std::vector<Attempt> needs = probe(other, "user", "NEED");
    for (Attempt& need : needs) need.what += context;
    judge(needs);
    UniqueFd watch(::inotify_init1(IN_CLOEXEC));
    must(static_cast<bool>(watch), "the host gets no inotify instance" + context);
    std::array<int, 2> ends{-1, -1};
    must(::pipe2(ends.data(), O_CLOEXEC) == 0 && ::fcntl(ends[0], F_GETPIPE_SZ) == 65536,
         "the host's pipes have shrunk" + context);
    ::close(ends[0]);
    ::close(ends[1]);
    UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    must(static_cast<bool>(terminal), "the host gets no terminal" + context);
    unsigned long requests = 0;
    must(::syscall(SYS_io_setup, 1, &requests) == 0,
         "the host gets no asynchronous request" + context);
    if (requests != 0) ::syscall(SYS_io_destroy, requests);
    std::string mine = "the host cannot make another sandbox" + context;
    Result<SandboxPtr> late = sync(engine_->create(standard()));
    must(late.has_value(), mine + (late ? "" : ": " + late.error().what));
    if (late) (void)sync((*late)->destroy());
    destroy(other);
    execution.reset();
    destroy(greedy);
  }
};

TEST_F(Resources, R01_ForkBomb) {
  begin("R01", "fork bomb");
  prove("R01", {"40"});
  SandboxPtr sandbox = make();
  auto nb = neighbour();
  attack(sandbox, "R01", {"400"});
  std::unique_ptr<Execution> bomb = start(sandbox, "user", "R02");
  ASSERT_TRUE(bomb);
  read_until(*bomb, "started");
  let_pass(500ms);
  expect_alive(sandbox, "a fork bomb went off in it");
  expect_undisturbed(nb);
  bomb.reset();
  must(destroy(sandbox) < 3s, "destroy is slow under a fork bomb");
}

TEST_F(Resources, R02_ManyForkBombs) {
  begin("R02", "fork bombs in many sandboxes at once");
  prove("R01", {"40"});
  SandboxSpec spec = standard();
  spec.limits.pids = 128;
  std::vector<SandboxPtr> storm;
  for (int i = 0; i < 8; ++i) {
    storm.push_back(make(spec));
    std::unique_ptr<Execution> bomb = start(storm.back(), "root", "R02");
    ASSERT_TRUE(bomb);
  }
  let_pass(1s);
  SandboxPtr late = make();
  expect_alive(late, "eight other sandboxes were full of processes");
  if (std::string all = group_file(nullptr, "pids", "pids.max"); !all.empty()) {
    long most = host_number(all, -1), numbers = host_number("/proc/sys/kernel/pid_max", 32768);
    must(most > 0 && most * 10 <= numbers * 8,
         "all sandboxes together may have " + read_host_file(all) + " processes");
  }
  for (SandboxPtr& one : storm) must(destroy(one) < 5s, "destroy is slow under a fork bomb");
}

TEST_F(Resources, R03_MemoryBomb) {
  begin("R03", "memory bomb");
  prove("R03", {"640"});
  SandboxPtr sandbox = make();
  auto nb = neighbour();
  attack(sandbox, "R03", {"640"});
  RunResult result = run(sandbox, "user", {kProbe, "R03-here", "640"});
  must(result.status.reason == EndReason::out_of_memory && result.status.exit_code == 137 &&
           result.status.oom_kills > 0,
       "not reported as out of memory: " + std::string(to_string(result.status.reason)));
  expect_alive(sandbox, "running out of memory");
  Result<Usage> usage = sync(nb->sandbox->usage());
  must(usage && usage->oom_kills == 0, "a neighbour was killed for it");
  expect_undisturbed(nb);
}

TEST_F(Resources, R04_FullTmpfs) {
  begin("R04", "fill every tmpfs");
  prove("R04", {"300"});
  SandboxPtr sandbox = make();
  attack(sandbox, "R04", {"300"});
  probe(sandbox, "root", "R04-leave");
  expect_alive(sandbox, "everything in it is full");
  Result<void> write = sync(sandbox->write_file("/workspace/one-more", std::string(kMiB, 'x')));
  must(!write, "a full sandbox still takes a file of 1 MiB");
  must(destroy(sandbox) < 5s, "destroy of a full sandbox is slow");
}

TEST_F(Resources, R05_Inodes) {
  begin("R05", "inode bomb");
  prove("R05", {"70000"});
  SandboxPtr sandbox = make();
  std::size_t before = daemon_memory();
  attack_as("root", sandbox, "R05", {"70000"});
  expect_alive(sandbox, "its inodes are used up");
  must(daemon_memory() < before + kDaemonGrowth, "the daemon has grown");
  must(destroy(sandbox) < 5s, "destroy of many files is slow");
}

TEST_F(Resources, R06_DiskQuota) {
  begin("R06", "fill the writable layer");
  prove("R06", {"300"});
  SandboxPtr sandbox = make(), other = make();
  attack(sandbox, "R06", {"300"});
  std::vector<Attempt> fits = probe(other, "user", "R06", {"100"});
  must(!fits.empty() && fits.front().succeeded, "a neighbour cannot write 100 MiB");
  Result<Usage> usage = sync(sandbox->usage());
  must(usage && usage->disk_bytes <= usage->disk_limit_bytes, "more on disk than the limit");
}

TEST_F(Resources, R07_SparseFiles) {
  begin("R07", "sparse files and other ways around a quota");
  prove("R07", {"300"});
  SandboxPtr sandbox = make();
  attack(sandbox, "R07", {"300"});
  std::size_t before = daemon_memory();
  run(sandbox, "user", {"/bin/sh", "-c", "truncate -s 200M /workspace/sparse"});
  Result<FileInfo> info = sync(sandbox->stat("/workspace/sparse"));
  must(info.has_value(), "stat of a sparse file fails");
  Result<std::string> content = sync(sandbox->read_file("/workspace/sparse", kMiB));
  must(!content || content->size() <= kMiB, "a read is not bounded");
  must(sync(sandbox->list("/workspace")).has_value(), "a sparse file breaks the listing");
  must(daemon_memory() < before + kDaemonGrowth, "the daemon has grown");
}

TEST_F(Resources, R08_Trees) {
  begin("R08", "deep and wide directories, names that are not text");
  prove("R08", {"40000", "15000"});
  SandboxPtr sandbox = make();
  attack_as("user", sandbox, "R08", {"40000", "15000"});
  std::size_t found = 0;
  std::uint64_t cursor = 0;
  std::set<std::string> names;
  do {
    Result<DirectoryPage> page = sync(sandbox->list("/workspace/wide", cursor, 1000));
    ASSERT_TRUE(page) << page.error().what;
    must(page->entries.size() <= 1000, "a page is longer than asked for");
    for (const FileInfo& info : page->entries) names.insert(info.name);
    found += page->entries.size();
    cursor = page->next;
  } while (cursor != 0 && found <= 20'000);
  must(names.size() == 15'000 && found == 15'000,
       "a listing in pages has " + std::to_string(found) + " entries");
  Result<DirectoryPage> odd = sync(sandbox->list("/workspace/names"));
  must(odd && odd->entries.size() == 5, "odd names are not listed");
  std::size_t descriptors = daemon_descriptors();
  Result<void> removed = sync(sandbox->remove("/workspace/deep"), 60s);
  must(removed.has_value(),
       "a deep tree cannot be removed: " + (removed ? "" : removed.error().what));
  must(daemon_descriptors() < descriptors + 50,
       "removing a deep tree costs the daemon descriptors");
  SandboxPtr full = make();
  attack_as("user", full, "R08", {"40000", "15000"});
  must(destroy(full) < 5s, "destroy of a deep tree is slow");
}

TEST_F(Resources, R09_Descriptors) {
  begin("R09", "descriptor exhaustion");
  prove("R09", {"5000"});
  SandboxPtr sandbox = make();
  std::size_t before = daemon_descriptors();
  attack(sandbox, "R09", {"5000"});
  long files = host_number("/proc/sys/fs/file-nr", 0);
  std::unique_ptr<Execution> holder = start(sandbox, "user", "HOLD-files");
  ASSERT_TRUE(holder);
  read_until(*holder, "holding");
  let_pass(300ms);
  long taken = host_number("/proc/sys/fs/file-nr", 0) - files;
  must(taken < host_number("/proc/sys/fs/file-max", 1L << 40) / 4,
       "nine processes hold " + std::to_string(taken) + " open files");
  must(daemon_descriptors() < before + 20, "the daemon's descriptors grow with the sandbox's");
  expect_alive(sandbox, "its descriptors are used up");
  holder.reset();
  expect_budgets_apart("HOLD-files");
}

TEST_F(Resources, R10_Inotify) {
  begin("R10", "inotify and fanotify");
  prove("R10");
  attack(make(), "R10");
  expect_budgets_apart("HOLD-inotify");
}

TEST_F(Resources, R11_Pipes) {
  begin("R11", "pipe buffers");
  prove("R11");
  attack(make(), "R11");
  expect_budgets_apart("HOLD-pipes");

  SandboxPtr sandbox = make();
  long before = tcp_pages();
  std::unique_ptr<Execution> execution = start(sandbox, "user", "HOLD-connections", {"400"});
  ASSERT_TRUE(execution);
  std::string said = read_until(*execution, "holding", 60s);
  long mib = (tcp_pages() - before) / 256;
  must(mib <= static_cast<long>(sandbox->spec().limits.memory_bytes / kMiB),
       "socket buffers take " + std::to_string(mib) +
           " MiB of the machine, more than the memory limit");
}

TEST_F(Resources, R12_OutputFlood) {
  begin("R12", "output flood");
  prove("R12", {"100"});
  SandboxPtr sandbox = make();
  auto nb = neighbour();
  std::size_t before = daemon_memory();

  Command killed;
  killed.output_bytes = 8 * kMiB;
  RunResult result = run(sandbox, "user", {kProbe, "FLOOD"}, killed);
  must(result.status.reason == EndReason::output_limit, "a flood does not end at the limit");
  must(result.out.size() + result.err.size() <= 9 * kMiB, "more output than the limit");

  Command truncated = killed;
  truncated.overflow = OutputOverflow::truncate;
  truncated.wall_time = 1s;
  result = run(sandbox, "user", {kProbe, "FLOOD"}, truncated);
  must(result.status.truncated_bytes > 0, "what was thrown away is not counted");
  must(result.out.size() + result.err.size() <= 9 * kMiB, "more output than the limit");
  result = {};
  must(daemon_memory() < before + kDaemonGrowth,
       "the daemon has grown after a flood that was read");

  std::unique_ptr<Execution> stalled = start(sandbox, "user", "FLOOD");
  ASSERT_TRUE(stalled);
  let_pass(1s);
  must(daemon_memory() < before + kDaemonGrowth,
       "the daemon has grown by a flood that nobody reads");
  auto start_of_kill = std::chrono::steady_clock::now();
  must(sync(stalled->signal(9)).has_value(), "a stalled flood cannot be signalled");
  while (true) {
    Result<std::optional<OutputChunk>> chunk = sync(stalled->read(), 5s);
    if (!chunk || !*chunk) break;
  }
  Result<ExitStatus> status = sync(stalled->wait(), 5s);
  must(status && status->signal == 9, "a stalled flood does not end by SIGKILL");
  must(std::chrono::steady_clock::now() - start_of_kill < 3s, "a stalled flood ends late");

  std::unique_ptr<Execution> vanished = start(sandbox, "user", "FLOOD");
  ASSERT_TRUE(vanished);
  vanished.reset();
  let_pass(500ms);
  must(daemon_memory() < before + kDaemonGrowth,
       "the daemon has grown by a flood whose reader has gone");
  must(sync(sandbox->kill_all()).has_value(), "kill_all fails");
  expect_alive(sandbox, "output floods");
  expect_undisturbed(nb);
}

TEST_F(Resources, R13_TerminalFlood) {
  begin("R13", "terminal flood");
  prove("R12", {"50"});
  SandboxPtr sandbox = make();
  Command terminal;
  terminal.terminal = TerminalSize{};
  RunResult result = run(sandbox, "user", {kProbe, "R13-verbatim", "64"}, terminal);
  std::string expected;
  for (int i = 0; i < 64; ++i)
    for (int byte = 0; byte < 256; ++byte) expected += static_cast<char>(byte);
  must(result.out == expected, "a raw terminal does not deliver every byte as written: " +
                                   std::to_string(result.out.size()) + " bytes");

  std::size_t before = daemon_memory();
  Command flood = terminal;
  flood.argv = {kProbe, "FLOOD", "1"};
  flood.wall_time = 20s;
  Result<std::unique_ptr<Execution>> execution = sync(sandbox->start(flood));
  ASSERT_TRUE(execution) << execution.error().what;
  let_pass(300ms);
  double cpu = cpu_seconds();
  let_pass(1s);
  must(cpu_seconds() - cpu < 0.7, "a terminal that nobody reads costs the daemon " +
                                      std::to_string(cpu_seconds() - cpu) + " s per second");
  must(daemon_memory() < before + kDaemonGrowth, "the daemon has grown");
  must(sync((*execution)->signal(9)).has_value(), "a terminal flood cannot be signalled");
  expect_alive(sandbox, "a terminal flood");
}

TEST_F(Resources, R14_Zombies) {
  begin("R14", "zombie storm");
  prove("R14", {"30"});
  attack(make(), "R14", {"3000"});
}

TEST_F(Resources, R15_Orphans) {
  begin("R15", "daemonised processes");
  prove("R15", {"asr-orphan-outside"});
  SandboxPtr sandbox = make();
  std::string token = "asr-orphan-" + random_name(12);
  std::vector<Attempt> said = probe(sandbox, "user", "R15", {token});
  judge(said);
  ASSERT_FALSE(said.empty());
  Result<std::vector<ProcessInfo>> processes = sync(sandbox->processes());
  ASSERT_TRUE(processes) << processes.error().what;
  bool listed = std::any_of(processes->begin(), processes->end(), [&](const ProcessInfo& p) {
    return std::to_string(p.pid) == said.front().detail;
  });
  std::size_t alive = host_processes_named(token);
  must((alive > 0) == listed,
       listed ? "a process is listed that is gone" : "an orphan lives on and is not listed");
  destroy(sandbox);
  must(host_processes_named(token) == 0, "an orphan survives its sandbox");
}

TEST_F(Resources, R16_Processor) {
  begin("R16", "processor hog and real-time priority");
  prove("R16");
  SandboxPtr sandbox = make();
  auto nb = neighbour();
  attack(sandbox, "R16");
  Result<Usage> before = sync(sandbox->usage());
  auto start_of_spin = std::chrono::steady_clock::now();
  run(sandbox, "user", {kProbe, "R16-spin", "2", "4"});
  double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_of_spin).count();
  Result<Usage> after = sync(sandbox->usage());
  ASSERT_TRUE(before && after);
  double used = static_cast<double>((after->cpu - before->cpu).count()) / 1e6;
  const IsolationFact* fact = sandbox->isolation().find("cpu_limit");
  if (fact == nullptr || fact->guarantee != Guarantee::none)
    must(used <= wall * 0.5 * 1.3 + 0.15, "four spinning processes used " + std::to_string(used) +
                                              " s of processor in " + std::to_string(wall) + " s");
  expect_undisturbed(nb);
}

TEST_F(Resources, R17_Disk) {
  begin("R17", "disk I/O storm");
  prove("R17", {std::filesystem::current_path()});
  SandboxPtr sandbox = make();
  attack(sandbox, "R17");
}

TEST_F(Resources, R18_Connections) {
  begin("R18", "connection flood through a port");
  SandboxPtr sandbox = make();
  std::unique_ptr<Execution> server = start(sandbox, "user", "SERVE-tcp", {"8080"});
  std::unique_ptr<Execution> deaf = start(sandbox, "user", "SERVE-tcp", {"8081", "1"});
  ASSERT_TRUE(server && deaf);
  read_until(*server, "listening");
  read_until(*deaf, "listening");
  std::size_t before = daemon_descriptors();
  {
    std::vector<UniqueFd> connections;
    for (int i = 0; i < 200; ++i) {
      Result<UniqueFd> connection = sync(sandbox->connect(8080), 5s);
      if (connection) connections.push_back(*std::move(connection));
    }
    must(connections.size() == 200,
         "a port inside takes " + std::to_string(connections.size()) + " of 200 connections");
    for (int i = 0; i < 4; ++i) {
      Result<UniqueFd> connection = sync(sandbox->connect(8081), 15s);
      must(connection || connection.error().code != Errc::timeout ||
               connection.error().what != kNoAnswer,
           "a port that accepts nobody holds the daemon for more than 15 s");
      if (!connection) break;
      connections.push_back(*std::move(connection));
    }
  }
  must(daemon_descriptors() <= before + 2, "connections leave descriptors behind");
  expect_alive(sandbox, "many connections");
}

TEST_F(Resources, R19_SharedMemory) {
  begin("R19", "SysV and POSIX memory, locked and huge pages");
  auto key = static_cast<key_t>(0x41535200 + (::getpid() & 0xff));
  int shared = ::shmget(key, 4096, IPC_CREAT | 0666);
  ASSERT_GE(shared, 0);
  prove("R19", {std::to_string(key)});
  SandboxPtr sandbox = make();
  attack(sandbox, "R19", {std::to_string(key)});
  ::shmctl(shared, IPC_RMID, nullptr);
  expect_alive(sandbox, "attacks on shared memory");
}

TEST_F(Resources, R20_SignalsAndTimers) {
  begin("R20", "timers, queued signals, terminals and other budgets of the machine");
  prove("R20");
  attack(make(), "R20");
  expect_budgets_apart("HOLD-timers");
  expect_budgets_apart("HOLD-terminals");
  expect_budgets_apart("HOLD-aio");
}

TEST_F(Resources, R21_KernelMemory) {
  begin("R21", "attributes and names that cost kernel memory");
  prove("R21", {"300"});
  SandboxPtr sandbox = make();
  attack(sandbox, "R21", {"300"});
  Result<Usage> usage = sync(sandbox->usage());
  must(usage && usage->memory_bytes <= sandbox->spec().limits.memory_bytes,
       "more memory than the limit");
  expect_alive(sandbox, "attacks on kernel memory");
}

TEST_F(Resources, R22_KernelLog) {
  begin("R22", "kernel log flood");
  prove("R22");
  std::size_t before = kernel_log_lines();
  attack(make(), "R22");
  std::size_t after = kernel_log_lines();
  must(after < before + 1000, std::to_string(after - before) + " new lines in the kernel log");
}

TEST_F(Resources, R23_CoreFiles) {
  begin("R23", "core dumps");
  prove("R23");
  SandboxPtr sandbox = make();
  attack(sandbox, "R23");
  RunResult result = run(sandbox, "root",
                         {"/bin/sh", "-c",
                          "find / -xdev -name 'core*' -type f -size +100k -newer "
                          "/workspace/escape_probes 2>/dev/null"});
  must(result.out.empty(), "core files: " + result.out);
}

TEST_F(Resources, R24_Pressure) {
  begin("R24", "pressure triggers");
  prove("R24");
  attack(make(), "R24");
}

TEST_F(Resources, R25_LoadOfTheMachine) {
  begin("R25", "figures that tell of the neighbours");
  prove("R25");
  attack(make(), "R25");
}

}  // namespace asr::escape
