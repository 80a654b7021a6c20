#include "engine/native_sandbox.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>

#include "engine/native_execution.hpp"
#include "os/pidfd.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

// Longer than a sandbox that is not under attack ever takes.
constexpr auto kEndsByItself = 20ms;
constexpr auto kDestroyWithin = 20s;
constexpr auto kPingWithin = 2s;
constexpr std::size_t kMostProcesses = 100'000;

}  // namespace

NativeSandbox::NativeSandbox(Birth birth, std::function<void(Remains)> bury)
    : birth_(std::move(birth)),
      bury_(std::move(bury)),
      peaks_(std::make_shared<MemoryPeaks>(birth_.cgroups, birth_.group)) {
  if (birth_.spec.network == Network::proxied)
    egress_ = std::make_shared<EgressQueue>(birth_.channel, birth_.spec.proxy_port);
}

NativeSandbox::~NativeSandbox() {
  drop_adopted();
  if (left_) return;
  kill_now();
  asio::post(strand(), [channel = birth_.channel] { channel->close(); });
  bury_once();
}

void NativeSandbox::begin() {
  auto unasked = [egress = std::weak_ptr(egress_)](Letter letter) {
    // The rest are answers to somebody who is gone.
    bool accepted = letter.type == static_cast<std::uint16_t>(wire::GuestType::accepted);
    if (auto queue = egress.lock(); queue && accepted) queue->put(std::move(letter));
  };
  birth_.channel->open(std::move(unasked),
                       [weak = weak_from_this(), egress = std::weak_ptr(egress_)] {
                         if (auto queue = egress.lock()) queue->close();
                         auto self = weak.lock();
                         if (!self || self->left_) return;
                         self->state_ = SandboxState::gone;
                         self->kill_now();  // It may have broken the protocol rather than died.
                         self->bury_once();
                         if (auto told = std::exchange(self->told_of_end_, nullptr)) told();
                       });
}

void NativeSandbox::on_end(std::function<void()> told) {
  asio::post(strand(), [weak = weak_from_this(), told = std::move(told)]() mutable {
    auto self = weak.lock();
    if (!self || self->left_) return;
    if (self->birth_.channel->is_open())
      self->told_of_end_ = std::move(told);
    else
      told();
  });
}

void NativeSandbox::learn(Isolation isolation, std::vector<std::uint32_t> step_micros) {
  birth_.isolation = std::move(isolation);
  birth_.step_micros = std::move(step_micros);
}

void NativeSandbox::set_execution_limits(const Limits& limits) {
  birth_.spec.limits.wall_time = limits.wall_time;
  birth_.spec.limits.cpu_time = limits.cpu_time;
  birth_.spec.limits.output_bytes = limits.output_bytes;
}

ExecutionContext NativeSandbox::execution_context() {
  ExecutionContext context;
  context.oom_kills = [cgroups = birth_.cgroups, group = birth_.group] {
    return cgroups->oom_kills(group);
  };
  context.watch_memory = [peaks = peaks_] { return peaks->watch(); };
  context.check_ready = [weak = weak_from_this()]() -> Result<void> {
    if (auto self = weak.lock()) return self->check_ready();
    return fail(Errc::gone, "the sandbox has ended", "create a new one");
  };
  context.paused = [weak = weak_from_this()] {
    auto self = weak.lock();
    return self ? self->paused_time_.total() : PausedTime::Clock::duration{};
  };
  context.left = [weak = weak_from_this()] {
    auto self = weak.lock();
    return self && self->left_;
  };
  context.keeper =
      [weak = weak_from_this()](
          std::weak_ptr<NativeExecution> execution) -> Result<std::shared_ptr<KeeperLink>> {
    auto self = weak.lock();
    if (!self) return fail(Errc::gone, "the sandbox has ended", "create a new one");
    if (!self->kept_) return fail(Errc::conflict, "its sandbox is not kept", "keep that first");
    std::erase_if(self->kept_executions_, [](const auto& other) { return other.expired(); });
    self->kept_executions_.push_back(std::move(execution));
    return self->birth_.keeper;
  };
  context.sandbox = birth_.id.text;
  return context;
}

void NativeSandbox::kill_now() noexcept {
  if (birth_.pidfd) (void)send_signal(birth_.pidfd.get(), SIGKILL);
}

void NativeSandbox::bury_once() {
  if (left_ || buried_.exchange(true)) return;
  // By way of the strand: whoever is keeping it at this moment is overtaken.
  if (kept_ && birth_.keeper)
    asio::post(strand(), [keeper = birth_.keeper, name = birth_.id.text] { keeper->forget(name); });
  UniqueFd copy(::fcntl(birth_.pidfd.get(), F_DUPFD_CLOEXEC, 3));
  std::shared_ptr<StorageLease> storage;
  {
    std::lock_guard lock(storage_mutex_);
    storage = std::move(birth_.storage);
  }
  if (storage) storage->end();
  bury_(Remains{birth_.group, std::move(copy), birth_.first_id, std::move(storage),
                birth_.spec.network});
}

Result<void> NativeSandbox::check_ready() const {
  switch (state_.load()) {
    case SandboxState::ready:
      return {};
    case SandboxState::paused:
      return fail(Errc::conflict, "the sandbox is paused", "resume it first");
    case SandboxState::gone:
      return fail(Errc::gone, "the sandbox has ended", "create a new one");
  }
  return {};
}

// ---- programs
// ------------------------------------------------------------------------------------

asio::awaitable<Result<std::unique_ptr<Execution>>> NativeSandbox::start(Command command) {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  ExecutionContext context = execution_context();
  context.read_ahead = !kept_;  // It may be kept, too, in a moment.
  auto starting = NativeExecution::start(birth_.channel, std::move(context), std::move(command),
                                         birth_.spec.limits);
  auto execution = CO_TRY(co_await on_strand(strand(), std::move(starting)));
  co_return share(std::move(execution), strand());
}

namespace {

asio::awaitable<void> feed(std::shared_ptr<NativeExecution> execution, std::string input) {
  auto writing = execution->write_stdin(std::move(input));
  (void)co_await std::move(writing);  // A program need not read all of it.
  execution->close_stdin();
}

asio::awaitable<Result<RunResult>> run_to_end(std::shared_ptr<Channel> channel,
                                              ExecutionContext context, Command command,
                                              Limits limits, std::string input) {
  if (!input.empty()) command.stdin_mode = StdinMode::pipe;
  auto starting = NativeExecution::start(channel, std::move(context), std::move(command), limits);
  auto execution = CO_TRY(co_await std::move(starting));
  if (!input.empty())
    asio::co_spawn(channel->executor(), feed(execution, std::move(input)), asio::detached);
  else
    execution->close_stdin();
  RunResult result;
  for (;;) {
    auto chunk = CO_TRY(co_await execution->read());
    if (!chunk) break;
    (chunk->stream == OutputChunk::Stream::out ? result.out : result.err) += chunk->data;
  }
  result.status = CO_TRY(co_await execution->wait());
  co_return result;
}

}  // namespace

asio::awaitable<Result<RunResult>> NativeSandbox::run(Command command, std::string input) {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  auto running = run_to_end(birth_.channel, execution_context(), std::move(command),
                            birth_.spec.limits, std::move(input));
  co_return co_await on_strand(strand(), std::move(running));
}

namespace {

asio::awaitable<Result<std::vector<ProcessInfo>>> list_processes(std::shared_ptr<Channel> channel) {
  auto box = channel->box();
  CO_TRY(channel->send(box->id(), wire::ListProcesses{}));
  std::vector<ProcessInfo> all;
  for (;;) {
    Letter letter = CO_TRY(co_await box->next(Channel::Clock::now() + kAnswerWithin));
    auto page = letter.as<wire::Processes>();
    if (!page) co_return fail(failure_in(letter));
    for (wire::Process& process : page->processes)
      all.push_back({process.pid, process.parent, process.uid, static_cast<char>(process.state),
                     process.cpu, process.rss_bytes, std::move(process.argv)});
    if (!page->more) co_return all;
    if (all.size() > kMostProcesses)
      co_return fail(Errc::internal, "the sandbox lists processes without end");
  }
}

}  // namespace

asio::awaitable<Result<std::vector<ProcessInfo>>> NativeSandbox::processes() {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  co_return co_await on_strand(strand(), list_processes(birth_.channel));
}

asio::awaitable<Result<void>> NativeSandbox::signal_process(std::int32_t pid, int number) {
  wire::SignalProcess request;
  request.pid = pid;
  request.signal = number;
  return request_done(request);
}

asio::awaitable<Result<void>> NativeSandbox::kill_all() { return request_done(wire::KillAll{}); }

// ---- life
// ----------------------------------------------------------------------------------------

asio::awaitable<Result<UniqueFd>> NativeSandbox::accept_egress() {
  if (!egress_)
    co_return fail(Errc::invalid, "the sandbox has no proxy", "make it with Network::proxied");
  if (state_ == SandboxState::gone)
    co_return fail(Errc::gone, "the sandbox has ended", "create a new one");
  // Not the sandbox itself: whoever waits for a connection does not keep it alive.
  auto taking = egress_->take();
  co_return co_await on_strand(strand(), std::move(taking));
}

bool NativeSandbox::is_alive() const noexcept {
  return state_ != SandboxState::gone && !wait_for_end(birth_.pidfd.get(), 0ms);
}

asio::awaitable<Result<void>> NativeSandbox::ping() {
  return request_done(wire::Ping{}, kPingWithin);
}

asio::awaitable<Result<void>> NativeSandbox::pause() {
  CO_TRY(check_ready());
  CO_TRY(birth_.cgroups->freeze(birth_.group, true));
  state_ = SandboxState::paused;
  paused_time_.begin();
  save_soon();
  co_return Result<void>();
}

asio::awaitable<Result<void>> NativeSandbox::skip_paused_time() {
  wire::SkipTime skip;
  skip.time = std::chrono::ceil<std::chrono::milliseconds>(paused_time_.current());
  auto unanswered = birth_.channel->box();
  co_return birth_.channel->send(unanswered->id(), skip);
}

asio::awaitable<Result<void>> NativeSandbox::resume() {
  if (state_ == SandboxState::gone)
    co_return fail(Errc::gone, "the sandbox has ended", "create a new one");
  if (state_ != SandboxState::paused) co_return fail(Errc::conflict, "the sandbox is not paused");
  CO_TRY(co_await on_strand(strand(), skip_paused_time()));
  CO_TRY(birth_.cgroups->freeze(birth_.group, false));
  paused_time_.end();
  state_ = SandboxState::ready;
  save_soon();
  co_return Result<void>();
}

asio::awaitable<Result<Usage>> NativeSandbox::usage() {
  if (state_ == SandboxState::gone)
    co_return fail(Errc::gone, "the sandbox has ended", "create a new one");
  Usage usage;
  birth_.cgroups->measure(birth_.group, usage);
  usage.memory_peak_bytes = std::max(usage.memory_peak_bytes, peaks_->highest());
  usage.disk_limit_bytes = birth_.spec.limits.disk_bytes;
  if (state_ == SandboxState::paused) co_return usage;  // Frozen, it cannot be asked.
  auto asking = request(wire::DiskUsage{});
  Letter answer = CO_TRY(co_await std::move(asking));
  if (auto disk = answer.as<wire::Disk>()) {
    if (birth_.spec.disk) usage.disk_limit_bytes = disk->limit_bytes;  // Its size when it was made.
    usage.disk_bytes = disk->used_bytes;
    usage.inodes = disk->used_inodes;
  }
  co_return usage;
}

namespace {

// An expired timer's handler may run after whoever set it is gone: what it uses, it owns.
void cancel_after(asio::steady_timer& deadline,
                  std::shared_ptr<asio::posix::stream_descriptor> waiting) {
  deadline.async_wait([waiting = std::move(waiting)](boost::system::error_code ec) {
    boost::system::error_code ignored;
    if (!ec) waiting->cancel(ignored);
  });
}

// True if what the descriptor stands for ended in time.
asio::awaitable<bool> ends_within(std::shared_ptr<asio::posix::stream_descriptor> pidfd,
                                  std::chrono::milliseconds patience) {
  asio::steady_timer deadline(pidfd->get_executor(), patience);
  cancel_after(deadline, pidfd);
  boost::system::error_code ec;
  // Asio's waits may end without a reason, so each is only an occasion to look.
  while (!wait_for_end(pidfd->native_handle(), 0ms) && !ec)
    co_await pidfd->async_wait(asio::posix::stream_descriptor::wait_read,
                               asio::redirect_error(asio::use_awaitable, ec));
  co_return wait_for_end(pidfd->native_handle(), 0ms);
}

}  // namespace

asio::awaitable<Result<void>> NativeSandbox::await_end(UniqueFd pidfd) {
  auto ended = std::make_shared<asio::posix::stream_descriptor>(strand(), pidfd.release());
  if (co_await ends_within(ended, kEndsByItself)) co_return Result<void>();
  birth_.cgroups->hasten_end(birth_.group);
  if (co_await ends_within(ended, kDestroyWithin)) co_return Result<void>();
  co_return fail(Errc::timeout, "the sandbox's processes did not end", "see agent-sandbox doctor");
}

asio::awaitable<Result<void>> NativeSandbox::destroy() {
  auto self = shared_from_this();
  if (left_) co_return fail(Errc::gone, "the sandbox was left to the next engine");
  state_ = SandboxState::gone;
  // Pid 1 takes everything else with it, and ends last; a frozen group dies like any other.
  kill_now();
  UniqueFd pidfd(::fcntl(birth_.pidfd.get(), F_DUPFD_CLOEXEC, 3));
  if (!pidfd) co_return fail_errno("dup");
  CO_TRY(co_await on_strand(strand(), await_end(std::move(pidfd))));
  bury_once();
  co_return Result<void>();
}

}  // namespace asr
