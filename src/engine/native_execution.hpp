// A program in a native sandbox: its pipes, read with back-pressure, and its end.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "engine/channel.hpp"
#include "engine/sandbox.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// What the sandbox knows and the program's end depends on.
struct ExecutionContext {
  std::function<std::uint64_t()> oom_kills;                     // of the sandbox so far
  std::function<Result<void>()> check_ready;                    // whether it can be asked now
  std::function<std::chrono::steady_clock::duration()> paused;  // for how long so far
};

// All of it runs on the sandbox's strand. Kept alive by the coroutines that read its pipes.
class NativeExecution : public std::enable_shared_from_this<NativeExecution> {
 public:
  using Clock = Channel::Clock;

  static asio::awaitable<Result<std::shared_ptr<NativeExecution>>> start(
      std::shared_ptr<Channel> channel, ExecutionContext context, Command command, Limits limits);

  std::int32_t pid() const noexcept { return pid_; }
  asio::awaitable<Result<std::optional<OutputChunk>>> read();
  asio::awaitable<Result<void>> write_stdin(std::string data);
  void close_stdin();
  void close_output(OutputChunk::Stream kind);
  asio::awaitable<Result<void>> signal(int number);
  asio::awaitable<Result<void>> resize(TerminalSize size);
  asio::awaitable<Result<ExitStatus>> wait();

  // Nobody will read: let the program run on, its output thrown away.
  void abandon();

 private:
  enum class Source { pipe, socket };
  struct Stream {
    Stream(const asio::any_io_executor& strand, int fd, Source s)
        : descriptor(strand, fd), source(s) {}
    asio::posix::stream_descriptor descriptor;
    Source source;
    bool unwanted = false;  // Nobody reads it any more, and its writer is to notice.
  };
  std::unique_ptr<Stream>& stream_of(OutputChunk::Stream kind) {
    return kind == OutputChunk::Stream::out ? out_ : err_;
  }

  NativeExecution(std::shared_ptr<Channel> channel, ExecutionContext context);
  Result<void> take_ends(std::vector<UniqueFd> fds, const Command& command);
  void begin(std::unique_ptr<Channel::Box> box);
  asio::awaitable<void> pump(OutputChunk::Stream kind);
  asio::awaitable<void> watch_end(std::unique_ptr<Channel::Box> box);
  void accept(OutputChunk::Stream kind, std::string data);
  void finish(ExitStatus status);
  asio::awaitable<void> wait_for_change();

  std::shared_ptr<Channel> channel_;
  ExecutionContext context_;
  asio::steady_timer changed_;
  std::uint32_t id_ = 0;
  std::int32_t pid_ = 0;
  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> err_;
  int pumping_ = 0;

  std::deque<OutputChunk> chunks_;
  std::size_t queued_bytes_ = 0;
  std::uint64_t seen_bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  OutputOverflow overflow_ = OutputOverflow::kill;
  bool over_limit_ = false;
  bool abandoned_ = false;
  bool terminal_ = false;

  Clock::time_point started_;
  std::chrono::milliseconds wall_time_{0};
  std::uint64_t oom_before_ = 0;
  Clock::duration paused_before_{};
  std::uint64_t truncated_bytes_ = 0;
  std::optional<ExitStatus> ended_;
};

// The same behind the public interface, safe from any thread.
std::unique_ptr<Execution> share(std::shared_ptr<NativeExecution> execution,
                                 asio::any_io_executor strand);

}  // namespace asr
