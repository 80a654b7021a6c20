#include "guest/guest.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <map>

#include "guest/outbox.hpp"
#include "guest/process_table.hpp"
#include "guest/programs.hpp"
#include "guest/work.hpp"

namespace asr {

namespace {

wire::Failure failure_of(const Error& error) {
  wire::Failure failure;
  failure.code = static_cast<std::uint8_t>(error.code);
  failure.what = error.what;
  failure.hint = error.hint;
  return failure;
}

enum class As { user, guest };  // Whose rights a worker has.

class Guest {
 public:
  explicit Guest(const GuestConfig& config)
      : config_(config),
        outbox_(config.socket),
        accounts_(config.rootless),
        programs_(config_),
        buffer_(kMaxPacket) {}

  [[noreturn]] void serve();

 private:
  struct Worker {
    std::uint32_t request = 0;
    // Somebody waits for it to be gone, and with it the descriptors it holds.
    bool tell_end = false;
    std::uint32_t relays = 0;  // the terminal of this execution
    bool watches = false;      // until it is told to stop
  };

  void handle(const Frame& frame, std::vector<UniqueFd> fds);
  Result<void> dispatch(const Frame& frame, std::vector<UniqueFd>& fds);
  Result<void> start(std::uint32_t id, const wire::Start& request);
  Result<void> file(std::uint32_t id, const wire::File& request, std::vector<UniqueFd>& fds);
  Result<void> list_processes(std::uint32_t id);
  Result<void> disk_usage(std::uint32_t id);
  Result<void> known_executions(std::uint32_t id);
  void reap();

  template <class Body>
  Result<void> in_worker(Worker worker, As as, const std::string& user, Body body);
  template <class Message>
  Result<void> answer(std::uint32_t id, const Message& message, std::vector<UniqueFd> fds = {}) {
    return outbox_.send(id, message, std::move(fds));
  }

  GuestConfig config_;
  Outbox outbox_;
  Accounts accounts_;
  Programs programs_;
  std::map<std::int32_t, Worker> workers_;  // by pid
  std::vector<char> buffer_;
};

// Forks; the child takes the user's rights, runs `body` and leaves. An error of `body` is its
// answer.
template <class Body>
Result<void> Guest::in_worker(Worker worker, As as, const std::string& user, Body body) {
  User who;
  if (as == As::user) who = TRY(accounts_.find(user));
  int pid = ::_Fork();
  if (pid < 0) return fail_errno("fork");
  if (pid > 0) {
    workers_[pid] = worker;
    return {};
  }
  outbox_.drop();
  Work work{config_.socket, worker.request};
  Result<void> done;
  if (as == As::user && become(config_, who) != 0)
    done = fail_errno("take the user's rights");
  else
    done = body(work);
  if (!done) done = work.answer(failure_of(done.error()));
  ::_exit(done ? 0 : 1);
}

Result<void> Guest::start(std::uint32_t id, const wire::Start& request) {
  User user = TRY(accounts_.find(request.user));
  StartedProgram program = TRY(programs_.start(id, request, user));
  wire::Started started;
  started.pid = program.pid;
  TRY(answer(id, started, std::move(program.ends)));
  if (!program.terminal_master) return {};
  int relay = ::_Fork();
  if (relay == 0) {
    outbox_.drop();  // The daemon's end may still be in there, and the relay must see it close.
    relay_terminal(std::move(program.terminal_master), std::move(program.terminal_peer));
    ::_exit(0);
  }
  if (relay > 0) workers_[relay] = {.relays = id};
  return {};
}

Result<void> Guest::file(std::uint32_t id, const wire::File& request, std::vector<UniqueFd>& fds) {
  switch (request.op) {
    case wire::FileOp::watch:
      return in_worker({.request = id, .watches = true}, As::user, request.user,
                       [&](const Work& work) { return work_on_watch(work, request); });
    case wire::FileOp::archive_out:
      return in_worker({.request = id}, As::user, request.user,
                       [&](const Work& work) { return work_on_archive_out(work, request); });
    case wire::FileOp::archive_in:
      if (fds.size() != 1) return fail(Errc::invalid, "no archive");
      return in_worker({.request = id}, As::user, request.user, [&](const Work& work) {
        return work_on_archive_in(work, request, std::move(fds[0]));
      });
    default:
      // A program that is still open for writing in a worker that is just leaving could not be
      // executed.
      return in_worker({.request = id, .tell_end = request.op == wire::FileOp::open_write},
                       As::user, request.user,
                       [&](const Work& work) { return work_on_files(work, request); });
  }
}

Result<void> Guest::list_processes(std::uint32_t id) {
  std::vector<std::int32_t> hidden;
  for (const auto& [pid, worker] : workers_) hidden.push_back(pid);
  return in_worker({.request = id}, As::guest, "", [&](const Work& work) -> Result<void> {
    hidden.push_back(::getpid());
    std::vector<wire::Process> all = describe_processes(hidden);
    // A few per frame: a command line has at most 4 KiB.
    constexpr std::size_t kPerFrame = 16;
    for (std::size_t from = 0; from < all.size() || from == 0; from += kPerFrame) {
      wire::Processes page;
      std::size_t to = std::min(all.size(), from + kPerFrame);
      page.processes.assign(all.begin() + static_cast<std::ptrdiff_t>(from),
                            all.begin() + static_cast<std::ptrdiff_t>(to));
      page.more = to < all.size();
      TRY(work.answer(page));
      if (!page.more) break;
    }
    return {};
  });
}

Result<void> Guest::disk_usage(std::uint32_t id) {
  struct statfs info {};
  // An overlay tells of its upper layer.
  if (::statfs(config_.disk ? "/" : "/dev/shm", &info) != 0) return fail_errno("statfs");
  wire::Disk disk;
  auto block = static_cast<std::uint64_t>(info.f_bsize);
  disk.limit_bytes = info.f_blocks * block;
  disk.used_bytes = (info.f_blocks - info.f_bfree) * block;
  disk.used_inodes = info.f_files - info.f_ffree;
  return answer(id, disk);
}

Result<void> Guest::known_executions(std::uint32_t id) {
  for (const auto& [pid, worker] : workers_)
    if (worker.watches) ::kill(pid, SIGKILL);
  wire::Executions known;
  known.ids = programs_.ids();
  return answer(id, known);
}

Result<void> Guest::dispatch(const Frame& frame, std::vector<UniqueFd>& fds) {
  using wire::GuestType;
  auto malformed = [] { return fail(Errc::internal, "malformed request"); };
  switch (static_cast<GuestType>(frame.type)) {
    case GuestType::start:
      if (auto request = decode<wire::Start>(frame)) return start(frame.id, *request);
      return malformed();
    case GuestType::file:
      if (auto request = decode<wire::File>(frame)) return file(frame.id, *request, fds);
      return malformed();
    case GuestType::ping:
      return answer(frame.id, wire::Done{});
    case GuestType::signal_execution:
      if (auto request = decode<wire::SignalExecution>(frame)) {
        TRY(programs_.signal(request->execution, request->signal));
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::signal_process:
      if (auto request = decode<wire::SignalProcess>(frame)) {
        if (request->pid <= 1) return fail(Errc::invalid, "no such process");
        if (::kill(request->pid, request->signal) != 0) return fail_errno("kill");
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::resize:
      if (auto request = decode<wire::Resize>(frame)) {
        TRY(programs_.resize(request->execution, request->rows, request->columns));
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::kill_all:
      // Everything but ourselves: that is what -1 means to a pid 1.
      if (::kill(-1, SIGKILL) != 0 && errno != ESRCH) return fail_errno("kill");
      return answer(frame.id, wire::Done{});
    case GuestType::connect:
      if (auto request = decode<wire::Connect>(frame))
        return in_worker({.request = frame.id}, As::guest, "",
                         [&](const Work& work) { return work_on_connection(work, request->port); });
      return malformed();
    case GuestType::known_executions:
      return known_executions(frame.id);
    case GuestType::list_processes:
      return list_processes(frame.id);
    case GuestType::disk_usage:
      return disk_usage(frame.id);
    case GuestType::skip_time:
      if (auto request = decode<wire::SkipTime>(frame)) {
        programs_.skip(request->time);
        return {};
      }
      return malformed();
    case GuestType::stop_work:
      if (auto request = decode<wire::StopWork>(frame)) {
        for (const auto& [pid, worker] : workers_)
          if (worker.request == request->work) ::kill(pid, SIGKILL);
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    default:
      return fail(Errc::internal, "unknown request");
  }
}

void Guest::handle(const Frame& frame, std::vector<UniqueFd> fds) {
  if (auto done = dispatch(frame, fds); !done) (void)answer(frame.id, failure_of(done.error()));
}

void Guest::reap() {
  int status = 0;
  rusage usage{};
  int pid = 0;
  while ((pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0) {
    if (auto ending = programs_.reaped(pid, status, usage)) {
      (void)answer(ending->id, ending->ended);
      continue;
    }
    auto found = workers_.find(pid);
    if (found == workers_.end()) continue;  // An orphan of the workload's.
    auto [id, tell_end, relays, watches] = found->second;
    workers_.erase(found);
    if (relays != 0) programs_.hang_up(relays);
    if (id == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      if (tell_end) (void)answer(id, wire::Done{});
      continue;
    }
    // Killed by the workload, or for want of memory; or the daemon stopped it and waits for
    // nothing.
    (void)answer(id,
                 failure_of(Error(Errc::exhausted, "the operation was ended inside the sandbox")));
  }
}

void Guest::serve() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd signals(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) ::_exit(1);
  for (;;) {
    auto sleep = programs_.enforce();
    short wanted = outbox_.empty() ? POLLIN : POLLOUT;
    std::array<pollfd, 2> ready{{{config_.socket, wanted, 0}, {signals.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), static_cast<int>(sleep.count())) < 0 && errno != EINTR)
      ::_exit(1);
    if (ready[1].revents != 0) {
      signalfd_siginfo info;
      while (::read(signals.get(), &info, sizeof info) > 0) {
      }
      reap();
    }
    if (ready[0].revents == 0) continue;
    if (wanted == POLLOUT) {
      if (!outbox_.flush()) ::_exit(0);
      continue;
    }
    auto received = receive_packet(config_.socket, buffer_);
    // Nobody holds the other end: leaving ends everything in the sandbox.
    if (!received || received->kind == Received::Kind::closed) ::_exit(0);
    auto frame = parse_frame(received->bytes);
    if (!frame) ::_exit(1);
    handle(*frame, std::move(received->fds));
  }
}

// Leaves three descriptors of the sandbox's own, the socket and the inner namespace; closes the
// rest.
GuestConfig keep_two_descriptors(GuestConfig config) {
  constexpr int kSocket = 3;
  constexpr int kUserns = 4;
  int socket = ::fcntl(config.socket, F_DUPFD_CLOEXEC, 10);
  int userns = ::fcntl(config.inner_userns, F_DUPFD_CLOEXEC, 10);
  if (socket < 0 || userns < 0 || ::dup3(socket, kSocket, O_CLOEXEC) < 0 ||
      ::dup3(userns, kUserns, O_CLOEXEC) < 0)
    ::_exit(1);
  ::syscall(SYS_close_range, kUserns + 1, ~0U, 0);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) null = ::open("/", O_PATH | O_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd)
    if (::dup2(null, fd) < 0) ::_exit(1);
  ::close(null);
  config.socket = kSocket;
  config.inner_userns = kUserns;
  return config;
}

}  // namespace

void run_guest(GuestConfig config, const LaunchOutcome& outcome, int landlock_abi) {
  config = keep_two_descriptors(config);
  ::prctl(PR_SET_NAME, "sandbox-init", 0, 0, 0);
  wire::Hello hello;
  hello.step_micros.assign(outcome.step_micros.begin(), outcome.step_micros.end());
  hello.idmapped = outcome.idmapped;
  hello.landlock_abi = landlock_abi;
  if (!send_message(config.socket, 0, hello)) ::_exit(1);
  Guest guest(config);
  guest.serve();
}

}  // namespace asr
