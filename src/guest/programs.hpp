// The programs the daemon asked for: starting them, watching their time, telling how they ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "guest/identity.hpp"
#include "guest/stock.hpp"
#include "wire/guest_messages.hpp"

struct rusage;

namespace asr {

struct StartedProgram {
  std::int32_t pid = 0;
  std::vector<UniqueFd> ends;  // For the daemon, in the order of wire::Started.
  UniqueFd terminal_master;    // Of a program with a terminal; the relay's copy.
  UniqueFd terminal_peer;      // The relay's end of the daemon's socket.
};

// What to execute instead of a file of the sandbox, and what that reads.
struct Frozen {
  UniqueFd thaw;
  std::vector<UniqueFd> layers;
};

class Programs {
 public:
  Programs(const GuestConfig& config, Stocktaker& stocktaker);

  Result<StartedProgram> start(std::uint32_t id, const wire::Start& request, const User& user,
                               const Frozen& frozen);

  // The answer for a child that ended, if it was a program.
  struct Ending {
    std::uint32_t id;
    wire::Ended ended;
    std::optional<wire::Measured> measured;  // told first
  };
  // Which child to reap next, -1 for any: one that is measured is looked at while it is there.
  std::int32_t next_to_reap();
  std::optional<Ending> reaped(std::int32_t pid, int status, const rusage& usage);

  std::vector<std::uint32_t> ids() const;  // of those that run

  // Ends those whose time is up and says how long the guest may sleep; negative: as long as it
  // likes.
  std::chrono::milliseconds enforce();

  // All of them were paused for so long.
  void skip(std::chrono::milliseconds time);

  Result<void> signal(std::uint32_t id, int number);
  // Nobody is at its terminal any more.
  void hang_up(std::uint32_t id);
  Result<void> resize(std::uint32_t id, std::uint16_t rows, std::uint16_t columns);

 private:
  using Clock = std::chrono::steady_clock;
  struct Program {
    std::uint32_t id = 0;
    int start_errno = 0;  // Not zero: it was never executed.
    UniqueFd terminal;
    Clock::time_point started;
    std::optional<Clock::time_point> deadline;
    std::chrono::milliseconds cpu_limit{0};
    wire::Stopped stopped = wire::Stopped::by_itself;
    std::optional<Stock> stock;                   // from before it began, if it is measured
    std::optional<std::uint64_t> written_before;  // by those that were reaped before it
  };

  std::map<std::int32_t, Program>::iterator find(std::uint32_t id);
  void enforce_memory();

  const GuestConfig& config_;
  Stocktaker& stocktaker_;
  std::size_t measured_ = 0;  // of the programs
  Clock::time_point next_sample_;
  std::map<std::int32_t, Program> programs_;  // by pid
  char* stack_ = nullptr;  // of children until they execute their program; one at a time
};

// A signal to a whole tree. With SIGKILL it looks again until nothing new was found.
void signal_tree(std::int32_t root, int number);

}  // namespace asr
