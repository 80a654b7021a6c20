// A command of a session: its output is kept, whether or not anybody looks, and so is its end.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/sandbox.hpp"
#include "net/json.hpp"
#include "session/bell.hpp"
#include "session/command_journal.hpp"
#include "session/output_log.hpp"
#include "session/request.hpp"

namespace asr {

class SessionCommand : public std::enable_shared_from_this<SessionCommand> {
 public:
  SessionCommand(asio::any_io_executor executor, std::uint64_t number, CommandRequest request,
                 std::size_t most_output, std::shared_ptr<CommandJournal> journal);
  // One of an earlier life of the server.
  SessionCommand(asio::any_io_executor executor, JournaledCommand journaled,
                 std::size_t most_output, std::shared_ptr<CommandJournal> journal);

  // Starts it in `sandbox` and reads its output until its end. `ended` is called once.
  asio::awaitable<Result<void>> start(std::shared_ptr<Sandbox> sandbox,
                                      std::function<void()> ended);
  // Goes on where an earlier life of the server was.
  void go_on(std::shared_ptr<Execution> execution, std::function<void()> ended);
  // It was running, and nobody knows what became of it.
  void lose();

  // Counts connections where they leave the sandbox; for its effects.
  void count_connections(std::function<Effects::Connections()> count);

  const std::string& id() const noexcept { return id_; }
  std::uint64_t number() const noexcept { return number_; }
  const OutputLog& output() const noexcept { return output_; }
  const std::optional<ExitStatus>& status() const noexcept { return status_; }
  bool is_running() const noexcept { return !status_; }
  std::int64_t started_us() const noexcept { return started_us_; }
  std::int32_t pid() const noexcept { return pid_; }  // as seen inside; 0: not known any more
  // How far anybody has read so far: whoever goes on there hears nothing twice.
  std::uint64_t heard() const noexcept { return heard_; }
  Bell::Clock::time_point ended_at() const noexcept { return ended_at_; }  // once it has
  const CommandRequest& request() const noexcept { return request_; }
  std::uint64_t stdin_bytes() const noexcept { return stdin_bytes_; }  // that were given to it

  // Returns after something changed: more output, or the end.
  asio::awaitable<void> wait_for_change(Bell::Clock::time_point deadline) {
    return changed_.wait(deadline);
  }
  asio::awaitable<void> wait_for_end(
      Bell::Clock::time_point deadline = Bell::Clock::time_point::max());

  asio::awaitable<Result<void>> write_stdin(std::string data);
  asio::awaitable<Result<void>> close_stdin();
  asio::awaitable<Result<void>> signal(int number);
  asio::awaitable<Result<void>> resize(TerminalSize size);

  // Somebody who wants all of the output: the program waits while this one is far behind.
  class Reader {
   public:
    Reader(std::shared_ptr<SessionCommand> command, std::uint64_t offset);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    void advance(std::uint64_t offset);

   private:
    std::shared_ptr<SessionCommand> command_;
  };

  // Whether what was before it was saved; none: nobody asked for that.
  void set_undoable(std::optional<bool> undoable) noexcept { undoable_ = undoable; }

  enum class Detail { summary, with_output };
  json::object describe(Detail detail) const;
  void write_to(CommandJournal& journal) const;  // all that is known of it

  // One that runs longer than this is kept, too: most are over by then, and cost no word with the
  // keeper. Whoever has started it says so when the time has come.
  static constexpr auto kLasts = std::chrono::milliseconds(20);
  bool is_kept() const noexcept { return in_journal_; }
  Bell::Clock::time_point lasts_from() const noexcept { return began_ + kLasts; }
  asio::awaitable<void> keep_because_it_lasts();

 private:
  asio::awaitable<void> follow(std::function<void()> ended);
  asio::awaitable<void> keep(std::shared_ptr<Execution> execution);
  json::object about() const;
  void write_down();  // what is not in the journal yet
  Result<void> check_running() const;
  bool is_somebody_behind() const;

  asio::any_io_executor executor_;
  std::uint64_t number_;
  std::string id_;
  CommandRequest request_;
  std::size_t most_output_;
  std::shared_ptr<CommandJournal> journal_;
  OutputLog output_;
  std::map<const Reader*, std::uint64_t> readers_;  // how far each has come
  Bell changed_;
  std::shared_ptr<Execution> execution_;
  std::optional<ExitStatus> status_;
  std::function<Effects::Connections()> count_connections_;
  Effects::Connections connections_;  // so far; once it has ended: its own
  std::optional<bool> undoable_;
  bool in_journal_ = true;
  std::int64_t started_us_ = 0;
  std::uint64_t stdin_bytes_ = 0;
  std::int32_t pid_ = 0;
  std::uint64_t heard_ = 0;
  Bell::Clock::time_point ended_at_;
  Bell::Clock::time_point began_;
};

// exited, signaled, timeout, out_of_memory, output_limit or refused.
std::string_view status_word(EndReason reason) noexcept;
// What a program used, as the API tells it.
json::object usage_of(const ExitStatus& status);

}  // namespace asr
