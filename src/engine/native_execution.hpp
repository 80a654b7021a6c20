// A program in a native sandbox: its pipes, read with back-pressure, and its end.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "engine/channel.hpp"
#include "engine/keeper_link.hpp"
#include "engine/label.hpp"
#include "engine/memory_peaks.hpp"
#include "engine/records.hpp"
#include "engine/sandbox.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

class NativeExecution;

// What the sandbox knows and the program's life depends on.
struct ExecutionContext {
  std::function<std::uint64_t()> oom_kills;                     // of the sandbox so far
  std::function<Result<void>()> check_ready;                    // whether it can be asked now
  std::function<std::chrono::steady_clock::duration()> paused;  // for how long so far
  std::function<std::unique_ptr<MemoryPeaks::Watch>()> watch_memory;
  std::function<bool()> left;  // It lives on without us: what we do not see proves nothing.
  // Who keeps the sandbox; an error if nobody does. Remembers the execution as one that is kept.
  std::function<Result<std::shared_ptr<KeeperLink>>(std::weak_ptr<NativeExecution>)> keeper;
  std::string sandbox;     // its name at the keeper
  bool read_ahead = true;  // What was read but not asked for dies with the daemon.
};

// All of it runs on the sandbox's strand. Kept alive by the coroutines that read its pipes.
class NativeExecution : public std::enable_shared_from_this<NativeExecution> {
 public:
  using Clock = Channel::Clock;

  static asio::awaitable<Result<std::shared_ptr<NativeExecution>>> start(
      std::shared_ptr<Channel> channel, ExecutionContext context, Command command, Limits limits);

  std::int32_t pid() const noexcept { return pid_; }
  std::string label() const { return label_.get(); }
  asio::awaitable<Result<std::optional<OutputChunk>>> read();
  asio::awaitable<Result<void>> write_stdin(std::string data);
  asio::awaitable<Result<void>> send_descriptor(UniqueFd descriptor);
  void close_stdin();
  void close_output(OutputChunk::Stream kind);
  asio::awaitable<Result<void>> signal(int number);
  asio::awaitable<Result<void>> resize(TerminalSize size);
  asio::awaitable<Result<ExitStatus>> wait();

  // Nobody will read: let the program run on, its output thrown away.
  void abandon();

  // ---- for those that outlive the daemon (kept_execution.cpp)

  asio::awaitable<Result<void>> keep(std::string label);
  // One that an earlier daemon kept. Before the channel is opened.
  static Result<std::shared_ptr<NativeExecution>> adopt(std::shared_ptr<Channel> channel,
                                                        ExecutionContext context,
                                                        ExecutionRecord record,
                                                        std::vector<UniqueFd> fds);
  std::uint32_t id() const noexcept { return id_; }
  void lose();   // The guest does not know it: its end was told to somebody who is gone.
  void leave();  // It goes on without us; from now on nothing of it may be read or said.
  void save();   // Tells the keeper what has changed.

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
    return kind == OutputChunk::Stream::out ? out_ : kind == OutputChunk::Stream::err ? err_ : in_;
  }

  NativeExecution(std::shared_ptr<Channel> channel, ExecutionContext context);
  Result<void> take_ends(std::vector<UniqueFd> fds, const Command& command);
  Result<void> take_terminal(UniqueFd socket);
  Result<void> take_kept_ends(const ExecutionRecord& record, std::vector<UniqueFd> fds);
  void begin(std::shared_ptr<Channel::Box> box);
  bool may_read(const Stream& stream) const;
  asio::awaitable<void> pump(OutputChunk::Stream kind);
  Clock::time_point answer_due() const;
  asio::awaitable<Result<Letter>> next_letter(std::shared_ptr<Channel::Box> box,
                                              std::function<Clock::time_point()> due);
  asio::awaitable<void> watch_end(std::shared_ptr<Channel::Box> box);
  void accept(OutputChunk::Stream kind, std::string data);
  void accept_what_came_before();
  void finish(ExitStatus status);
  asio::awaitable<void> wait_for_change();
  std::string kept_name() const;
  Result<Keepsake> keepsake() const;

  std::shared_ptr<Channel> channel_;
  ExecutionContext context_;
  asio::steady_timer changed_;
  std::uint32_t id_ = 0;
  std::int32_t pid_ = 0;
  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> out_;
  std::unique_ptr<Stream> err_;
  int pumping_ = 0;
  std::weak_ptr<Channel::Box> end_;  // where its end will be told

  std::deque<OutputChunk> chunks_;
  std::size_t queued_bytes_ = 0;
  int readers_ = 0;  // that wait
  std::uint64_t seen_bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  OutputOverflow overflow_ = OutputOverflow::kill;
  bool over_limit_ = false;
  bool abandoned_ = false;
  bool terminal_ = false;
  bool both_ways_ = false;  // in_ is read, too
  bool left_ = false;

  Clock::time_point started_;
  std::chrono::milliseconds wall_time_{0};
  std::uint64_t oom_before_ = 0;
  Clock::duration paused_before_{};
  std::uint64_t truncated_bytes_ = 0;
  std::optional<ExitStatus> ended_;
  bool with_effects_ = false;
  std::unique_ptr<MemoryPeaks::Watch> memory_;

  Label label_;
  std::shared_ptr<KeeperLink> keeper_;  // only while it is kept
  std::optional<Clock::time_point> adopted_;
  Clock::duration paused_at_adoption_{};
};

// The same behind the public interface, safe from any thread.
std::unique_ptr<Execution> share(std::shared_ptr<NativeExecution> execution,
                                 asio::any_io_executor strand);

}  // namespace asr
