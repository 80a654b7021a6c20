// One session: its record, its computer, its commands.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "engine/sandbox.hpp"
#include "session/artifacts.hpp"
#include "session/checkpoints.hpp"
#include "session/command.hpp"
#include "session/contexts.hpp"
#include "session/egress.hpp"
#include "session/history.hpp"
#include "session/request.hpp"
#include "session/slots.hpp"
#include "store/session_records.hpp"

namespace asr {

// Stopped: a persistent one without a computer at the moment; its files wait for the next.
enum class SessionState { creating, ready, paused, stopped, gone };
std::string_view to_string(SessionState state) noexcept;

// All on one thread. What changes it and must survive goes through Sessions.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Clock = std::chrono::steady_clock;

  // `sandbox`: none while it is stopped.
  Session(Context::Home home, SessionRecord record, SessionRequest request,
          std::shared_ptr<Sandbox> sandbox, std::shared_ptr<CommandJournal> journal,
          Artifacts artifacts);
  ~Session();

  const std::string& id() const noexcept { return record_.id; }
  const std::string& owner() const noexcept { return record_.owner; }
  SessionState state() const noexcept { return state_; }
  const SessionRecord& record() const noexcept { return record_; }
  SessionRecord& record() noexcept { return record_; }
  const SessionRequest& request() const noexcept { return request_; }

  // Errc::gone once it has ended; Errc::conflict while it is stopped, or paused, unless that is
  // wanted.
  enum class Want { running, alive };
  Result<std::shared_ptr<Sandbox>> sandbox(Want want = Want::running) const;
  void set_sandbox(std::shared_ptr<Sandbox> sandbox) noexcept;
  // Its computer ended by itself.
  bool has_lost_sandbox() const noexcept {
    return sandbox_ && sandbox_->state() == SandboxState::gone;
  }
  void set_state(SessionState state) noexcept { state_ = state; }

  // Gives back what it holds only to be quick.
  void rest();
  void touch() noexcept;  // It was used.
  // Between these it is in use, however long that takes.
  void hold() noexcept { ++holds_; }
  void let_go() noexcept {
    --holds_;
    touch();
  }
  Clock::time_point last_used() const noexcept { return last_used_; }
  // When it ends if nothing happens.
  Clock::time_point deadline() const noexcept;
  void set_life(std::int64_t expires_ms, std::int64_t idle_ms) noexcept;
  bool is_over() const noexcept { return deadline() <= Clock::now(); }

  // Its way out, where it has one, and what programs must trust for that.
  void set_egress(std::unique_ptr<SessionEgress> egress);
  bool has_trust() const noexcept { return !trust_.empty(); }
  void set_trust(std::map<std::string, std::string> variables) { trust_ = std::move(variables); }
  const SessionEgress* egress() const noexcept { return egress_.get(); }
  void set_network(NetworkRequest network, EgressPolicy filled);
  // The same network, with other secrets in it.
  void refill_network(EgressPolicy filled);
  // How many were not told since the last that was; none: this one may not be, either.
  std::optional<std::uint64_t> may_tell_attempt() noexcept;

  // What programs find in their environment.
  std::map<std::string, std::string> environment() const;
  Contexts& contexts() noexcept { return contexts_; }
  Contexts::Place place_of_contexts() const { return {sandbox(), environment(), ""}; }
  Artifacts& artifacts() noexcept { return artifacts_; }
  // What it began with, if it is a branch and that is still known.
  const std::shared_ptr<const SavedState>& origin() const noexcept { return origin_; }
  void set_origin(std::shared_ptr<const SavedState> state) { origin_ = std::move(state); }
  Checkpoints& checkpoints() noexcept { return checkpoints_; }
  // For what must not happen at the same time: saving, going back, merging, pausing.
  Slots& branching() noexcept { return branching_; }
  const Checkpoints& checkpoints() const noexcept { return checkpoints_; }

  // What was done in it; none: nobody wants to know.
  History* history() noexcept { return history_.get(); }
  void set_history(std::unique_ptr<History> history) { history_ = std::move(history); }
  // Adds a step to it, as soon as those have been answered who wait.
  void note(json::object step);

  // Gets the command when it is over.
  using CommandEnd = std::function<void(std::shared_ptr<SessionCommand>)>;
  asio::awaitable<Result<std::shared_ptr<SessionCommand>>> start_command(CommandRequest request,
                                                                         CommandEnd ended);
  // Those of an earlier life of the server; what the sandbox still runs goes on.
  void take_up(std::vector<JournaledCommand> commands, const CommandEnd& ended);
  // Its sandbox and its commands go on without this server.
  void leave();
  // What it wrote of itself has files of its own from now on.
  void move_out();
  // It has ended: what it wrote of itself goes.
  void forget() noexcept;
  Result<std::shared_ptr<SessionCommand>> command(std::string_view id) const;
  std::vector<std::shared_ptr<SessionCommand>> commands() const;  // The oldest first.

  json::object describe() const;

 private:
  std::function<void()> after(const std::shared_ptr<SessionCommand>& command, CommandEnd ended);
  void count_end(const SessionCommand& command);
  void forget_old_commands();
  void keep_if_it_lasts(const std::shared_ptr<SessionCommand>& command);
  static asio::awaitable<void> keep_those_that_last(std::weak_ptr<Session> session);
  std::optional<Clock::time_point> look_at_young();
  void tidy_journal();

  asio::any_io_executor executor_;
  SessionRecord record_;
  SessionRequest request_;
  std::shared_ptr<Sandbox> sandbox_;
  std::shared_ptr<CommandJournal> journal_;
  Artifacts artifacts_;
  std::unique_ptr<History> history_;
  Contexts contexts_;
  Checkpoints checkpoints_;
  Slots branching_;
  std::shared_ptr<const SavedState> origin_;
  SessionState state_ = SessionState::ready;
  Clock::time_point last_used_;
  int holds_ = 0;
  Clock::time_point expires_ = Clock::time_point::max();
  std::unique_ptr<SessionEgress> egress_;
  std::map<std::string, std::string> trust_;
  Clock::time_point telling_since_;
  std::uint32_t told_attempts_ = 0;  // since then
  std::uint64_t unsaid_attempts_ = 0;
  std::uint64_t command_count_ = 0;
  std::map<std::uint64_t, std::shared_ptr<SessionCommand>> commands_;
  std::deque<std::uint64_t> ended_;  // of them, in the order of their ends
  std::size_t ended_bytes_ = 0;      // what these have written, as far as it is kept
  std::deque<std::weak_ptr<SessionCommand>> young_;  // The oldest first.
  bool watching_young_ = false;
};

// A record as the API shows it, with or without a live session behind it.
json::object describe(const SessionRecord& record);

json::array json_of(const Isolation& isolation);

}  // namespace asr
