#include "engine/native_execution.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>

#include "base/scope_exit.hpp"
#include "engine/guest_answers.hpp"
#include "engine/program_texts.hpp"
#include "engine/told_effects.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kChunk = 64 * 1024;
constexpr std::size_t kFirstChunk = 4 * 1024;  // Most say little, and very many may run.
// What may lie unread in the daemon for one program. Beyond it the pipes fill, and the program
// waits.
constexpr std::size_t kMostQueued = 1 << 20;
// What a program wrote before it ended is in its pipe, which holds at most this much. Whoever
// inherited the pipe may go on writing without end.
constexpr std::size_t kMostAfterEnd = 1 << 20;
// How long a terminal's last words may take through the relay after its program has ended.
constexpr auto kTerminalDrain = 250ms;
// The guest ends programs whose time is up. If it does not, it is not to be trusted any more.
constexpr auto kGuestGrace = 5s;

// A pipe of the guest's making, through a description of our own: on the guest's it could switch
// "do not block" off under our feet.
Result<UniqueFd> reopen_pipe(const UniqueFd& fd, int flags) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode))
    return fail(Errc::internal, "the sandbox handed out something that is not a pipe");
  std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd own(::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC));
  if (!own && errno != ENXIO) return fail_errno("open pipe");  // ENXIO: its reader is gone already.
  return own;
}

Result<void> check_stream_socket(const UniqueFd& fd) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(int);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM)
    return fail(Errc::internal, "the sandbox handed out something that is not a terminal's socket");
  return {};
}

}  // namespace

NativeExecution::NativeExecution(std::shared_ptr<Channel> channel, ExecutionContext context)
    : channel_(std::move(channel)),
      context_(std::move(context)),
      // Never rings by itself; cancel() wakes everybody who waits.
      changed_(channel_->executor(), Clock::time_point::max()) {}

asio::awaitable<Result<std::shared_ptr<NativeExecution>>> NativeExecution::start(
    std::shared_ptr<Channel> channel, ExecutionContext context, Command command, Limits limits) {
  CO_TRY(check_command(command));
  std::shared_ptr<NativeExecution> execution(new NativeExecution(channel, std::move(context)));
  execution->most_bytes_ = command.output_bytes.value_or(limits.output_bytes);
  execution->overflow_ = command.overflow;
  execution->terminal_ = command.terminal.has_value();
  execution->both_ways_ = command.stdin_mode == StdinMode::both_ways && !command.terminal;
  execution->oom_before_ = execution->context_.oom_kills();
  execution->paused_before_ = execution->context_.paused();
  execution->started_ = Clock::now();
  if (command.effects) {
    execution->with_effects_ = true;
    execution->memory_ = execution->context_.watch_memory();
  }
  wire::Start request = request_for(command, limits);
  execution->wall_time_ = request.wall_time;

  auto box = channel->box();
  execution->id_ = box->id();
  std::vector<int> fds;
  if (command.frozen) {
    fds.push_back(command.frozen->thaw->get());
    for (const auto& layer : command.frozen->layers) fds.push_back(layer->file.get());
  }
  CO_TRY(channel->send(box->id(), request, fds));
  Letter answer = CO_TRY(co_await box->next(Clock::now() + kAnswerWithin));
  auto started = answer.as<wire::Started>();
  if (!started) co_return fail(failure_in(answer));
  execution->pid_ = started->pid;
  CO_TRY(execution->take_ends(std::move(answer.fds), command));
  execution->begin(std::move(box));
  co_return execution;
}

Result<void> NativeExecution::take_terminal(UniqueFd socket) {
  TRY(check_stream_socket(socket));
  UniqueFd writer(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3));
  if (!writer) return fail_errno("dup");
  const asio::any_io_executor& strand = channel_->executor();
  out_ = std::make_unique<Stream>(strand, socket.release(), Source::socket);
  in_ = std::make_unique<Stream>(strand, writer.release(), Source::socket);
  return {};
}

Result<void> NativeExecution::take_ends(std::vector<UniqueFd> fds, const Command& command) {
  const asio::any_io_executor& strand = channel_->executor();
  if (command.terminal) {
    if (fds.size() != 1) return fail(Errc::internal, "wrong number of descriptors");
    return take_terminal(std::move(fds[0]));
  }
  bool with_stdin = command.stdin_mode != StdinMode::closed;
  if (fds.size() != (with_stdin ? 3U : 2U))
    return fail(Errc::internal, "wrong number of descriptors");
  std::size_t next = 0;
  if (both_ways_) {
    UniqueFd in = std::move(fds[next++]);
    TRY(check_stream_socket(in));
    in_ = std::make_unique<Stream>(strand, in.release(), Source::socket);
  } else if (with_stdin) {
    UniqueFd in = TRY(reopen_pipe(fds[next++], O_WRONLY));
    if (in) in_ = std::make_unique<Stream>(strand, in.release(), Source::pipe);
  }
  UniqueFd out = TRY(reopen_pipe(fds[next++], O_RDONLY));
  UniqueFd err = TRY(reopen_pipe(fds[next], O_RDONLY));
  out_ = std::make_unique<Stream>(strand, out.release(), Source::pipe);
  err_ = std::make_unique<Stream>(strand, err.release(), Source::pipe);
  return {};
}

void NativeExecution::begin(std::shared_ptr<Channel::Box> box) {
  auto spawn_pump = [&](const std::unique_ptr<Stream>& stream, OutputChunk::Stream kind) {
    if (!stream) return;
    ++pumping_;
    asio::co_spawn(channel_->executor(), pump(kind), asio::detached);
  };
  spawn_pump(out_, OutputChunk::Stream::out);
  spawn_pump(err_, OutputChunk::Stream::err);
  if (both_ways_) spawn_pump(in_, OutputChunk::Stream::reply);
  if (ended_) return;  // It was known before.
  end_ = box;
  asio::co_spawn(channel_->executor(), watch_end(std::move(box)), asio::detached);
}

asio::awaitable<void> NativeExecution::wait_for_change() {
  boost::system::error_code ec;
  auto token = asio::redirect_error(asio::use_awaitable, ec);
  co_await changed_.async_wait(token);
}

void NativeExecution::accept(OutputChunk::Stream kind, std::string data) {
  seen_bytes_ += data.size();
  if (most_bytes_ != 0 && seen_bytes_ > most_bytes_) {
    std::uint64_t over = std::min<std::uint64_t>(seen_bytes_ - most_bytes_, data.size());
    data.resize(data.size() - over);
    truncated_bytes_ += over;
    if (!over_limit_) {
      over_limit_ = true;
      if (overflow_ == OutputOverflow::kill) {
        wire::SignalExecution kill;
        kill.execution = id_;
        kill.signal = SIGKILL;
        auto box = channel_->box();  // Its answer is of no interest.
        (void)channel_->send(box->id(), kill);
      }
    }
  }
  if (abandoned_ || data.empty()) return;
  queued_bytes_ += data.size();
  chunks_.push_back(OutputChunk{kind, std::move(data)});
  changed_.cancel();
}

// A program that replies has said before what it had to say.
void NativeExecution::accept_what_came_before() {
  std::array<char, kFirstChunk> buffer{};
  for (auto kind : {OutputChunk::Stream::out, OutputChunk::Stream::err}) {
    const std::unique_ptr<Stream>& stream = stream_of(kind);
    // No more than a pipe holds: others may go on writing.
    for (std::size_t taken = 0; stream && !stream->unwanted && taken < kMostAfterEnd;) {
      ssize_t n = ::read(stream->descriptor.native_handle(), buffer.data(), buffer.size());
      if (n <= 0) break;
      taken += static_cast<std::size_t>(n);
      accept(kind, std::string(buffer.data(), static_cast<std::size_t>(n)));
    }
  }
}

bool NativeExecution::may_read(const Stream& stream) const {
  if (stream.unwanted || abandoned_ || left_) return true;
  if (!context_.read_ahead) return readers_ > 0 && chunks_.empty();
  return queued_bytes_ < kMostQueued || ended_;  // After the end nothing waits for a reader.
}

asio::awaitable<void> NativeExecution::pump(OutputChunk::Stream kind) {
  auto self = shared_from_this();
  std::unique_ptr<Stream>& stream = stream_of(kind);
  std::string buffer(kFirstChunk, '\0');
  auto drain_until = Clock::time_point::max();
  std::size_t after_end = 0;
  for (;;) {
    while (!may_read(*stream)) co_await wait_for_change();
    if (stream->unwanted || left_ || after_end >= kMostAfterEnd) break;
    int fd = stream->descriptor.native_handle();
    ssize_t n = stream->source == Source::socket
                    ? ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT)
                    : ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      if (ended_) after_end += static_cast<std::size_t>(n);
      if (kind == OutputChunk::Stream::reply) accept_what_came_before();
      accept(kind, buffer.substr(0, static_cast<std::size_t>(n)));
      if (static_cast<std::size_t>(n) == buffer.size()) buffer.resize(kChunk);
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) break;
    if (ended_) {
      // All the program wrote was in its pipe before it ended. A terminal's way is longer.
      if (!terminal_) break;
      if (drain_until == Clock::time_point::max()) drain_until = Clock::now() + kTerminalDrain;
      if (Clock::now() >= drain_until) break;
      asio::steady_timer pause(channel_->executor(), 5ms);
      co_await pause.async_wait(asio::use_awaitable);
      continue;
    }
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await stream->descriptor.async_wait(asio::posix::stream_descriptor::wait_read, token);
  }
  stream.reset();
  --pumping_;
  changed_.cancel();
}

NativeExecution::Clock::time_point NativeExecution::answer_due() const {
  if (wall_time_.count() == 0) return Clock::time_point::max();
  auto due = started_ + wall_time_ + context_.paused() - paused_before_;
  // What the guest had to say may lie unread since before we came.
  if (adopted_) due = std::max(due, *adopted_ + context_.paused() - paused_at_adoption_);
  return due + kGuestGrace;
}

// `due` moves while the sandbox stands still.
asio::awaitable<Result<Letter>> NativeExecution::next_letter(
    std::shared_ptr<Channel::Box> box, std::function<Clock::time_point()> due) {
  for (;;) {
    auto letter = co_await box->next(due());
    if (letter || letter.error().code != Errc::timeout || Clock::now() >= due()) co_return letter;
  }
}

asio::awaitable<void> NativeExecution::watch_end(std::shared_ptr<Channel::Box> box) {
  auto self = shared_from_this();
  auto waiting = next_letter(box, [this] { return answer_due(); });
  auto answer = co_await std::move(waiting);
  std::shared_ptr<Effects> effects;
  if (auto measured = answer ? answer->as<wire::Measured>() : std::nullopt) {
    effects = std::make_shared<Effects>(effects_of(*std::move(measured), memory_.get()));
    auto due = Clock::now() + kAnswerWithin - context_.paused();
    auto going_on = next_letter(box, [this, due] { return due + context_.paused(); });
    answer = co_await std::move(going_on);
  }
  memory_.reset();
  ExitStatus status;
  status.wall = Clock::now() - started_;
  if (auto ended = answer ? answer->as<wire::Ended>() : std::nullopt) {
    status = status_of(*ended);
    if (effects) effects->cpu = status.cpu_user + status.cpu_system;
    status.wall = Clock::now() - started_;
    // Perhaps long ago, while nobody was there to hear it.
    if (adopted_ && ended->wall.count() > 0)
      status.wall = std::min<std::chrono::nanoseconds>(status.wall, ended->wall);
  } else if (left_ || context_.left() || (!answer && answer.error().code == Errc::not_found)) {
    status.reason = EndReason::lost;
    status.exit_code = 255;
  } else {
    if (channel_->is_open()) channel_->close();  // Silent, or lying: the sandbox is over.
    status.reason = EndReason::sandbox_gone;
    status.exit_code = 137;
    status.signal = SIGKILL;
  }
  if (with_effects_ && !effects)
    effects = std::make_shared<Effects>(unknown_effects("the sandbox ended first"));
  status.effects = std::move(effects);
  finish(status);
}

void NativeExecution::finish(ExitStatus status) {
  std::uint64_t oom_now = context_.oom_kills();  // 0 once the sandbox is gone.
  if (oom_now > oom_before_) status.oom_kills = static_cast<std::uint32_t>(oom_now - oom_before_);
  bool killed =
      status.signal == SIGKILL || (status.reason == EndReason::exited && status.exit_code == 137);
  if (status.oom_kills > 0 && killed &&
      (status.reason == EndReason::signaled || status.reason == EndReason::exited))
    status.reason = EndReason::out_of_memory;
  ended_ = status;
  if (!both_ways_) in_.reset();
  boost::system::error_code ignored;
  for (auto* stream : {&in_, &out_, &err_})
    if (*stream) (*stream)->descriptor.cancel(ignored);
  changed_.cancel();
  save();
}

asio::awaitable<Result<std::optional<OutputChunk>>> NativeExecution::read() {
  auto self = shared_from_this();
  ++readers_;
  ScopeExit done([this] { --readers_; });
  if (!context_.read_ahead) changed_.cancel();  // Whoever waits for a reader has one now.
  for (;;) {
    if (left_) co_return fail(Errc::gone, "the sandbox was left to the next engine");
    if (!chunks_.empty()) {
      OutputChunk chunk = std::move(chunks_.front());
      chunks_.pop_front();
      queued_bytes_ -= chunk.data.size();
      changed_.cancel();
      co_return std::optional<OutputChunk>(std::move(chunk));
    }
    if (pumping_ == 0 && ended_) co_return std::optional<OutputChunk>();
    co_await wait_for_change();
  }
}

asio::awaitable<Result<void>> NativeExecution::write_stdin(std::string data) {
  auto self = shared_from_this();
  std::string_view left = data;
  while (!left.empty()) {
    if (ended_) co_return fail(Errc::conflict, "the program has ended");
    if (!in_)
      co_return fail(Errc::conflict, "stdin is closed", "start the program with stdin as a pipe");
    int fd = in_->descriptor.native_handle();
    ssize_t n = in_->source == Source::socket
                    ? ::send(fd, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                    : ::write(fd, left.data(), left.size());
    if (n > 0) {
      left.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EPIPE || errno == ECONNRESET)
      co_return fail(Errc::conflict, "the program does not read stdin any more");
    if (errno != EAGAIN && errno != EINTR) co_return fail_errno("write stdin");
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await in_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write, token);
  }
  co_return Result<void>();
}

// In one piece with a byte of its own: whoever waits for it reads that byte and nothing else.
asio::awaitable<Result<void>> NativeExecution::send_descriptor(UniqueFd descriptor) {
  auto self = shared_from_this();
  if (ended_) co_return fail(Errc::conflict, "the program has ended");
  if (!in_ || !both_ways_)
    co_return fail(Errc::conflict, "the program takes no descriptors", "start it with both ways");
  std::array<int, 1> sent{descriptor.get()};
  co_return send_packet(in_->descriptor.native_handle(), ".", sent, Wait::dont_block);
}

void NativeExecution::close_stdin() {
  if (!in_) return;
  // A terminal has one socket for both ways; its end of input is a control character, not a close.
  if (terminal_) return;
  if (both_ways_) {
    (void)::shutdown(in_->descriptor.native_handle(), SHUT_WR);
    return;
  }
  in_.reset();
  save();
}

void NativeExecution::close_output(OutputChunk::Stream kind) {
  std::erase_if(chunks_, [&](const OutputChunk& chunk) {
    if (chunk.stream != kind) return false;
    queued_bytes_ -= chunk.data.size();
    return true;
  });
  if (std::unique_ptr<Stream>& stream = stream_of(kind)) {
    stream->unwanted = true;
    boost::system::error_code ignored;
    stream->descriptor.cancel(ignored);
    if (terminal_) in_.reset();  // Its other half: only without both does the terminal hang up.
  }
  changed_.cancel();
  save();
}

asio::awaitable<Result<void>> NativeExecution::signal(int number) {
  CO_TRY(context_.check_ready());
  wire::SignalExecution request;
  request.execution = id_;
  request.signal = number;
  co_return co_await ask_done(channel_, request);
}

asio::awaitable<Result<void>> NativeExecution::resize(TerminalSize size) {
  CO_TRY(context_.check_ready());
  wire::Resize request;
  request.execution = id_;
  request.rows = size.rows;
  request.columns = size.columns;
  co_return co_await ask_done(channel_, request);
}

asio::awaitable<Result<ExitStatus>> NativeExecution::wait() {
  auto self = shared_from_this();
  while (!ended_) co_await wait_for_change();
  ExitStatus status = *ended_;
  status.truncated_bytes = truncated_bytes_;
  // Only now: a quick program's last words are read after its end.
  if (over_limit_ && overflow_ == OutputOverflow::kill &&
      (status.reason == EndReason::signaled || status.reason == EndReason::exited)) {
    status.reason = EndReason::output_limit;
    status.exit_code = 128 + SIGKILL;
  }
  co_return status;
}

void NativeExecution::abandon() {
  abandoned_ = true;
  chunks_.clear();
  queued_bytes_ = 0;
  changed_.cancel();
  if (auto keeper = std::exchange(keeper_, nullptr)) keeper->forget(kept_name());
}

}  // namespace asr
