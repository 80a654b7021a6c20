#include "guest/programs.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "frozen/image.hpp"
#include "guest/process_table.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMostPrograms = 4096;
constexpr std::size_t kStack = 1 << 20;  // execvpe() puts the arguments of a script there.
constexpr auto kSampleEvery = 50ms;
constexpr auto kCountEvery = 250ms;  // Nobody starts 32,768 processes in that time.

// The environment of every program, before the request's own. Later entries win.
std::vector<std::string> environment_for(const wire::Start& request, const User& user,
                                         std::uint16_t proxy_port) {
  std::vector<std::string> env{
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      "HOME=" + user.home,
      "USER=" + user.name,
      "LOGNAME=" + user.name,
      "SHELL=" + user.shell,
      "LANG=C.UTF-8",
      "PWD=" + request.cwd,
  };
  if (request.terminal) env.emplace_back("TERM=xterm-256color");
  if (proxy_port != 0) {
    std::string proxy = "http://127.0.0.1:" + std::to_string(proxy_port);
    for (const char* name : {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
      env.push_back(std::string(name) + "=" + proxy);
    for (const char* name : {"no_proxy", "NO_PROXY"})
      env.push_back(std::string(name) + "=localhost,127.0.0.1");
    env.emplace_back("NODE_USE_ENV_PROXY=1");
  }
  for (const std::string& entry : request.env) {
    std::string_view name = std::string_view(entry).substr(0, entry.find('=') + 1);
    auto same = std::find_if(env.begin(), env.end(),
                             [&](const std::string& other) { return other.starts_with(name); });
    if (same != env.end())
      *same = entry;
    else
      env.push_back(entry);
  }
  return env;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Streams {
  UniqueFd child_in, child_out, child_err;
  StartedProgram started;
  UniqueFd terminal;  // The guest's own copy of the master.
};

struct Pipe {
  UniqueFd reader, writer;
};

// Owned by the program's user, so that opening /dev/stdout works as it does elsewhere.
Result<Pipe> make_pipe(const User& user) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  (void)::fchown(ends[0], user.uid, user.gid);
  return pipe;
}

Result<Streams> open_pipes(const wire::Start& request, const User& user) {
  Streams streams;
  if (request.both_ways) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return fail_errno("socketpair");
    streams.started.ends.emplace_back(ends[0]);
    streams.child_in = UniqueFd(ends[1]);
  } else if (request.want_stdin) {
    Pipe in = TRY(make_pipe(user));
    streams.child_in = std::move(in.reader);
    streams.started.ends.push_back(std::move(in.writer));
  } else {
    streams.child_in = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!streams.child_in) return fail_errno("open /dev/null");
  }
  Pipe out = TRY(make_pipe(user));
  Pipe err = TRY(make_pipe(user));
  streams.child_out = std::move(out.writer);
  streams.child_err = std::move(err.writer);
  streams.started.ends.push_back(std::move(out.reader));
  streams.started.ends.push_back(std::move(err.reader));
  return streams;
}

Result<Streams> open_terminal(const wire::Start& request, const User& user) {
  Streams streams;
  UniqueFd master(::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master) return fail_errno("open /dev/pts/ptmx");
  int unlocked = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &unlocked) != 0) return fail_errno("unlock terminal");
  UniqueFd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) return fail_errno("open terminal");
  (void)::fchown(slave.get(), user.uid, static_cast<gid_t>(-1));
  winsize size{};
  size.ws_row = request.rows;
  size.ws_col = request.columns;
  (void)::ioctl(master.get(), TIOCSWINSZ, &size);

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  streams.started.ends.emplace_back(ends[0]);
  streams.started.terminal_peer = UniqueFd(ends[1]);
  streams.terminal = UniqueFd(::fcntl(master.get(), F_DUPFD_CLOEXEC, 3));
  streams.started.terminal_master = std::move(master);
  streams.child_in = UniqueFd(::fcntl(slave.get(), F_DUPFD_CLOEXEC, 3));
  streams.child_out = UniqueFd(::fcntl(slave.get(), F_DUPFD_CLOEXEC, 3));
  streams.child_err = std::move(slave);
  return streams;
}

struct Birth {
  const GuestConfig& config;
  const wire::Start& request;
  const User& user;
  const Streams& streams;
  const Frozen& frozen;
  char* const* argv;
  char* const* envp;
  int error = 0;  // why the program could not be executed
};

// The layers must have their numbers and survive; whatever has these numbers now may be one of
// them, or the program itself.
void execute_frozen(const Birth& birth) noexcept {
  constexpr int kFirst = frozen::kImageDescriptor;
  constexpr int kBeyond = kFirst + static_cast<int>(frozen::kMostLayers);
  std::array<int, frozen::kMostLayers> layers{};
  std::size_t count = birth.frozen.layers.size();
  int thaw = ::fcntl(birth.frozen.thaw.get(), F_DUPFD_CLOEXEC, kBeyond);
  if (thaw < 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    layers[i] = ::fcntl(birth.frozen.layers[i].get(), F_DUPFD_CLOEXEC, kBeyond);
    if (layers[i] < 0) return;
  }
  for (std::size_t i = 0; i < count; ++i)
    if (::dup2(layers[i], kFirst + static_cast<int>(i)) < 0) return;
  ::execveat(thaw, "", birth.argv, birth.envp, AT_EMPTY_PATH);
}

// Not by way of /proc/self/fd and the like, where names lead to what somebody holds.
int enter(const char* folder) noexcept {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  auto fd = static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, folder, &how, sizeof how));
  return fd < 0 ? -1 : ::fchdir(fd);
}

// In the child, which shares our memory until it executes its program, and for which we wait so
// long: nothing is copied that would be thrown away at once.
int execute(void* argument) noexcept {
  auto& birth = *static_cast<Birth*>(argument);
  const wire::Start& request = birth.request;
  const Streams& streams = birth.streams;
  auto give_up = [&]() {
    birth.error = errno;
    ::_exit(birth.error == ENOENT ? 127 : 126);
  };
  // Folders that no program may come near, whatever it calls its own to start in.
  for (int fd : birth.config.scratch.descriptors) ::close(fd);
  if (::setsid() < 0) give_up();
  if (::dup2(streams.child_in.get(), 0) < 0 || ::dup2(streams.child_out.get(), 1) < 0 ||
      ::dup2(streams.child_err.get(), 2) < 0)
    give_up();
  if (request.terminal && ::ioctl(0, TIOCSCTTY, 0) != 0) give_up();
  rlimit files{request.open_files, request.open_files};
  rlimit most_files{};
  ::getrlimit(RLIMIT_NOFILE, &most_files);
  files.rlim_cur = files.rlim_max = std::min<rlim_t>(request.open_files, most_files.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) give_up();
  if (request.cpu_time.count() > 0) {
    // The guest watches the whole tree more closely; this holds when it cannot.
    auto seconds = static_cast<rlim_t>((request.cpu_time.count() + 999) / 1000);
    rlimit cpu{seconds + 1, seconds + 2};
    if (::setrlimit(RLIMIT_CPU, &cpu) != 0) give_up();
  }
  if (become(birth.config, birth.user) != 0) give_up();
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (enter(request.cwd.c_str()) != 0) give_up();
  // Everything is close-on-exec already; this makes it certain.
  if (::syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up();
  if (request.layers > 0) execute_frozen(birth), give_up();
  ::execvpe(birth.argv[0], birth.argv, birth.envp);
  give_up();
  return 126;
}

}  // namespace

Programs::Programs(const GuestConfig& config, Stocktaker& stocktaker)
    : config_(config), stocktaker_(stocktaker) {
  void* stack = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (stack != MAP_FAILED) stack_ = static_cast<char*>(stack);
}

Result<StartedProgram> Programs::start(std::uint32_t id, const wire::Start& request,
                                       const User& user, const Frozen& frozen) {
  if (request.argv.empty()) return fail(Errc::invalid, "no command");
  if (stack_ == nullptr || programs_.size() >= kMostPrograms)
    return fail(Errc::exhausted, "too many programs at once");
  Streams streams =
      TRY(request.terminal ? open_terminal(request, user) : open_pipes(request, user));

  std::vector<std::string> arguments = request.argv;
  std::vector<std::string> environment = environment_for(request, user, config_.proxy_port);
  std::vector<char*> argv = pointers_to(arguments);
  std::vector<char*> envp = pointers_to(environment);
  // execvpe() looks through our PATH, not the program's.
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) ::setenv("PATH", entry.c_str() + 5, 1);

  std::optional<Stock> stock;
  if (request.effects) stock = stocktaker_.take();
  Birth birth{config_, request, user, streams, frozen, argv.data(), envp.data()};
  int pid = ::clone(execute, stack_ + kStack, CLONE_VM | CLONE_VFORK | SIGCHLD, &birth);
  if (pid < 0) return fail_errno("clone");

  Program program;
  program.id = id;
  program.start_errno = birth.error;
  program.terminal = std::move(streams.terminal);
  program.started = Clock::now();
  if (request.wall_time.count() > 0) program.deadline = program.started + request.wall_time;
  program.cpu_limit = request.cpu_time;
  program.stock = std::move(stock);
  if (program.stock) ++measured_;
  programs_.insert_or_assign(pid, std::move(program));
  streams.started.pid = pid;
  return std::move(streams.started);
}

std::optional<Programs::Ending> Programs::reaped(std::int32_t pid, int status,
                                                 const rusage& usage) {
  auto found = programs_.find(pid);
  if (found == programs_.end()) return std::nullopt;
  Program& program = found->second;
  wire::Ended ended;
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  ended.start_errno = program.start_errno;
  ended.stopped = program.stopped;
  if (ended.signal == SIGXCPU && program.cpu_limit.count() > 0)
    ended.stopped = wire::Stopped::cpu_time;
  auto micros = [](const timeval& time) {
    return std::chrono::microseconds(static_cast<std::int64_t>(time.tv_sec) * 1'000'000 +
                                     time.tv_usec);
  };
  ended.cpu_user = micros(usage.ru_utime);
  ended.cpu_system = micros(usage.ru_stime);
  ended.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  ended.wall =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - program.started);
  Ending ending{program.id, ended, {}};
  if (program.stock) {
    std::optional<ProcessUse> used;
    auto written = stocktaker_.written_by_reaped();
    if (written && program.written_before)
      used = ProcessUse{*written - *program.written_before, {}};
    ending.measured = stocktaker_.since(*program.stock, used);
    --measured_;
  }
  programs_.erase(found);
  return ending;
}

std::int32_t Programs::next_to_reap() {
  siginfo_t info{};
  if (measured_ == 0 || ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return -1;
  auto found = programs_.find(info.si_pid);
  if (found != programs_.end() && found->second.stock)
    found->second.written_before = stocktaker_.written_by_reaped();
  return info.si_pid;
}

std::vector<std::uint32_t> Programs::ids() const {
  std::vector<std::uint32_t> ids;
  for (const auto& [pid, program] : programs_) ids.push_back(program.id);
  return ids;
}

std::map<std::int32_t, Programs::Program>::iterator Programs::find(std::uint32_t id) {
  return std::find_if(programs_.begin(), programs_.end(),
                      [&](const auto& entry) { return entry.second.id == id; });
}

Result<void> Programs::signal(std::uint32_t id, int number) {
  if (number < 0 || number > SIGRTMAX) return fail(Errc::invalid, "no such signal");
  auto found = find(id);
  if (found == programs_.end()) return fail(Errc::not_found, "the program has ended");
  signal_tree(found->first, number);
  return {};
}

void Programs::hang_up(std::uint32_t id) {
  // With the last descriptor of the terminal's other side; the kernel tells the session.
  if (auto found = find(id); found != programs_.end()) found->second.terminal.reset();
}

Result<void> Programs::resize(std::uint32_t id, std::uint16_t rows, std::uint16_t columns) {
  auto found = find(id);
  if (found == programs_.end()) return fail(Errc::not_found, "the program has ended");
  if (!found->second.terminal) return fail(Errc::invalid, "the program has no terminal");
  winsize size{};
  size.ws_row = rows;
  size.ws_col = columns;
  if (::ioctl(found->second.terminal.get(), TIOCSWINSZ, &size) != 0) return fail_errno("resize");
  return {};
}

std::chrono::milliseconds Programs::enforce() {
  auto sleep = -1ms;
  auto wake_within = [&](std::chrono::milliseconds time) {
    if (sleep < 0ms || time < sleep) sleep = std::max(time, 1ms);
  };
  auto stop = [](std::int32_t pid, Program& program, wire::Stopped reason) {
    program.stopped = reason;
    signal_tree(pid, SIGKILL);
  };
  std::vector<ProcessStat> all;
  auto now = Clock::now();
  // Not at each turn: programs may wake us all the time, by calls that are refused for example.
  bool samples = now >= next_sample_;
  if (samples) next_sample_ = now + kSampleEvery;
  auto wake_for_sample = [&] {
    wake_within(std::chrono::ceil<std::chrono::milliseconds>(next_sample_ - now));
  };
  for (auto& [pid, program] : programs_) {
    if (program.stopped != wire::Stopped::by_itself) continue;
    if (program.deadline) {
      if (now >= *program.deadline) {
        stop(pid, program, wire::Stopped::wall_time);
        continue;
      }
      wake_within(std::chrono::ceil<std::chrono::milliseconds>(*program.deadline - now));
    }
    if (program.cpu_limit.count() == 0) continue;
    wake_for_sample();
    if (!samples) continue;
    if (all.empty()) all = all_processes();
    auto used = 0ms;
    for (const ProcessStat& stat : tree_of(pid, all)) used += stat.cpu + stat.children_cpu;
    if (used >= program.cpu_limit) stop(pid, program, wire::Stopped::cpu_time);
  }
  if (measured_ > 0) {
    stocktaker_.count_processes();
    wake_within(kCountEvery);
  }
  if (config_.watched_memory_bytes != 0 && !programs_.empty()) {
    if (samples) enforce_memory();
    wake_for_sample();
  }
  return sleep;
}

void Programs::skip(std::chrono::milliseconds time) {
  for (auto& [pid, program] : programs_)
    if (program.deadline) *program.deadline += time;
}

// Where no cgroup holds the limit: the largest process goes, as the kernel would choose.
void Programs::enforce_memory() {
  std::vector<ProcessStat> all = all_processes();
  std::uint64_t sum = 0;
  for (const ProcessStat& stat : all) sum += stat.rss_bytes;
  if (sum <= config_.watched_memory_bytes || all.empty()) return;
  auto largest = std::max_element(
      all.begin(), all.end(),
      [](const ProcessStat& a, const ProcessStat& b) { return a.rss_bytes < b.rss_bytes; });
  auto program = programs_.find(largest->pid);
  if (program != programs_.end()) program->second.stopped = wire::Stopped::memory;
  ::kill(largest->pid, SIGKILL);
}

void signal_tree(std::int32_t root, int number) {
  // The root by its number: until it has executed its program /proc hides it.
  ::kill(root, number);
  // A tree that forks while it is being killed is caught by looking again; a few rounds are enough,
  // and destroying the sandbox needs none of this.
  int rounds = number == SIGKILL ? 5 : 1;
  std::vector<std::int32_t> seen{root};
  for (int round = 0; round < rounds; ++round) {
    bool found = false;
    for (const ProcessStat& stat : tree_of(root, all_processes())) {
      if (stat.state == 'Z' || std::find(seen.begin(), seen.end(), stat.pid) != seen.end())
        continue;
      ::kill(stat.pid, number);
      seen.push_back(stat.pid);
      found = true;
    }
    if (!found) return;
  }
}

}  // namespace asr
