// All batches: how many programs are in work at once, whose are next, what is kept and for how
// long.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/log.hpp"
#include "provider/provider.hpp"
#include "session/batch.hpp"
#include "session/caller.hpp"
#include "session/event_bus.hpp"
#include "session/judge.hpp"
#include "session/turns.hpp"
#include "store/store.hpp"

namespace asr {

struct BatchSettings {
  std::uint32_t at_once = 0;          // programs in work; zero: two for each processor
  std::uint32_t most_items = 10000;   // of one request
  std::uint32_t most_queued = 50000;  // of all; half of it of one caller
  // Of programs that wait; and as much again of verdicts that are kept.
  std::uint64_t most_bytes = 256ULL << 20;
  std::chrono::seconds keep{600};  // so long after its end a batch can be asked for
};

struct BatchCounts {
  VerdictCounts verdicts{};
  std::size_t waiting = 0;
  std::size_t in_work = 0;
  std::size_t batches = 0;    // known ones
  std::uint64_t retries = 0;  // of what was our fault
  std::uint64_t built = 0;    // by a compiler
  std::uint64_t reused = 0;   // without one
};

// On one thread. Outlived by what it was given. All of it is in memory: it ends with the server.
class Batches {
 public:
  Batches(asio::any_io_executor executor, Provider& provider,
          std::shared_ptr<WarmInterpreters> interpreters, Store& store, EventBus& events,
          const Log& log, BatchSettings settings);
  ~Batches();

  // Errc::exhausted where there is no room for it.
  asio::awaitable<Result<std::shared_ptr<Batch>>> submit(Caller caller, BatchRequest request);

  // Foreign, unknown and malformed ids are alike.
  Result<std::shared_ptr<Batch>> find(const Caller& caller, const std::string& id) const;
  // The newest first; operators see everybody's.
  std::vector<std::shared_ptr<Batch>> list(const Caller& caller, std::size_t limit) const;
  // Ends what is in work and drops the rest; one that has ended is forgotten.
  asio::awaitable<Result<void>> cancel(Caller caller, std::shared_ptr<Batch> batch);

  // Nothing more is begun; returns when nothing is in work.
  asio::awaitable<void> stop();

  BatchCounts counts() const;
  const BatchSettings& settings() const noexcept { return settings_; }

 private:
  Result<void> admit(const Caller& caller, const BatchRequest& request) const;
  void take_in(const std::shared_ptr<Batch>& batch);
  void begin_work();
  asio::awaitable<void> work_on(std::shared_ptr<Batch> batch,
                                std::shared_ptr<const BatchItem> item);
  asio::awaitable<Judgement> judge_safely(std::string owner, std::shared_ptr<const BatchItem> item,
                                          std::shared_ptr<CallOff> call_off);
  void tell_verdict(Batch& batch, const BatchItem& item, const Judgement& judgement);
  void end(const std::shared_ptr<Batch>& batch, BatchState state);
  void call_off(const std::shared_ptr<Batch>& batch);
  asio::awaitable<void> announce_end(std::shared_ptr<Batch> batch);

  // What is kept (batch_memory.cpp).
  bool make_room(const std::string& owner, std::size_t bytes);
  bool forget_oldest(const std::string* owner);
  void forget(const std::shared_ptr<Batch>& batch);
  void keep(Batch& batch, std::size_t bytes);
  asio::awaitable<void> forget_old();

  asio::any_io_executor executor_;
  Store& store_;
  EventBus& events_;
  const Log& log_;
  BatchSettings settings_;
  Judge judge_;
  Turns turns_;
  std::unordered_map<std::string, std::shared_ptr<Batch>> all_;
  std::map<std::uint64_t, std::shared_ptr<Batch>> by_age_;                      // the oldest first
  std::unordered_map<std::string, std::deque<std::shared_ptr<Batch>>> queues_;  // by owner
  std::uint64_t ages_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t kept_bytes_ = 0;
  std::unordered_map<std::string, std::size_t> kept_of_;  // by owner
  VerdictCounts told_{};
  bool stopping_ = false;
  bool forgetting_ = false;
  Bell changed_;  // something ended
  std::shared_ptr<bool> gone_ = std::make_shared<bool>(false);
};

}  // namespace asr
