// Pid 1 itself: what it knows, and the loop it lives in. One request at a time; anything slow is a
// forked worker's.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "guest/egress.hpp"
#include "guest/guest.hpp"
#include "guest/identity.hpp"
#include "guest/outbox.hpp"
#include "guest/programs.hpp"
#include "guest/refusals.hpp"
#include "guest/stock.hpp"
#include "guest/work.hpp"
#include "os/seqpacket.hpp"

namespace asr {

wire::Failure failure_of(const Error& error);

enum class As { user, guest, keeper_of_files };  // Whose rights a worker has.

class Guest {
 public:
  Guest(const GuestConfig& config, Egress egress)
      : config_(config),
        egress_(std::move(egress)),
        outbox_(config.socket),
        accounts_(config.rootless),
        refusals_(UniqueFd(config.refusals), config.tier, config.gate_secret),
        stocktaker_(config_.scratch, refusals_, UniqueFd(config.own_io)),
        programs_(config_, stocktaker_),
        buffer_(kMaxPacket) {}

  [[noreturn]] void serve();

 private:
  struct Worker {
    std::uint32_t request = 0;
    std::uint32_t relays = 0;  // the terminal of this execution
    bool watches = false;      // until it is told to stop
  };

  void handle(const Frame& frame, std::vector<UniqueFd> fds);
  Result<void> dispatch(const Frame& frame, std::vector<UniqueFd>& fds);
  Result<void> start(std::uint32_t id, const wire::Start& request, std::vector<UniqueFd>& fds);
  Result<void> file(std::uint32_t id, const wire::File& request, std::vector<UniqueFd>& fds);
  Result<void> written_files(std::uint32_t id, wire::FileOp op, std::vector<UniqueFd>& fds);
  int take_rights(As as, const User& who) const noexcept;
  Result<void> list_processes(std::uint32_t id);
  Result<void> disk_usage(std::uint32_t id);
  Result<void> known_executions(std::uint32_t id);
  Result<void> take_stock(std::uint32_t id, const wire::TakeStock& request);
  Result<void> tell_effects(std::uint32_t id, const wire::TellEffects& request);
  void reap();
  void let_out();

  template <class Body>
  Result<void> in_worker(Worker worker, As as, const std::string& user, Body body);
  template <class Message>
  Result<void> answer(std::uint32_t id, const Message& message, std::vector<UniqueFd> fds = {}) {
    return outbox_.send(id, message, std::move(fds));
  }

  GuestConfig config_;
  Egress egress_;
  Outbox outbox_;
  Accounts accounts_;
  RefusalListener refusals_;
  Stocktaker stocktaker_;
  std::map<std::uint32_t, Stock> stocks_;  // by the request that had it taken
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
    stocktaker_.started_own();
    workers_[pid] = worker;
    return {};
  }
  outbox_.drop();
  refusals_.drop();
  Work work{config_.socket, worker.request};
  Result<void> done;
  if (take_rights(as, who) != 0)
    done = fail_errno("take the user's rights");
  else
    done = body(work);
  if (!done) done = work.answer(failure_of(done.error()));
  ::_exit(done ? 0 : 1);
}

}  // namespace asr
