// One batch: programs that wait for their verdicts, and the verdicts reached so far. They stay in
// order, so that a reader who was cut off goes on where it was.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/json.hpp"
#include "session/batch_request.hpp"
#include "session/bell.hpp"
#include "session/call_off.hpp"
#include "session/judge.hpp"

namespace asr {

enum class BatchState { running, done, cancelled };
std::string_view to_string(BatchState state) noexcept;

using VerdictCounts = std::array<std::uint64_t, kVerdicts>;
json::object json_of(const VerdictCounts& counts);  // those that are not zero

// On one thread. Batches changes it; others look.
class Batch {
 public:
  Batch(asio::any_io_executor executor, std::string id, std::string owner, BatchRequest request);

  const std::string& id() const noexcept { return id_; }
  const std::string& owner() const noexcept { return owner_; }
  BatchState state() const noexcept { return state_; }
  std::size_t total() const noexcept { return total_; }
  std::size_t waiting() const noexcept { return items_.size(); }
  const VerdictCounts& counts() const noexcept { return counts_; }
  std::int64_t created_ms() const noexcept { return created_ms_; }
  std::size_t bytes() const noexcept { return bytes_; }  // that it is counted with

  // Verdicts as they are told: a line of JSON each, in the order they were reached.
  const std::deque<std::string>& verdicts() const noexcept { return verdicts_; }
  // Returns after one more was reached, or the end.
  asio::awaitable<void> wait_for_change(Bell::Clock::time_point deadline) {
    return changed_.wait(deadline);
  }

  json::object describe() const;

  // Somebody reads its verdicts: it is not forgotten to make room.
  class Reader {
   public:
    explicit Reader(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) { ++batch_->readers_; }
    ~Reader() { --batch_->readers_; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    std::shared_ptr<Batch> batch_;
  };
  bool is_read() const noexcept { return readers_ > 0; }

 private:
  friend class Batches;

  std::shared_ptr<const BatchItem> take_item();
  void add(Verdict verdict, std::string line);
  void end(BatchState state);

  std::string id_;
  std::string owner_;
  std::uint64_t age_ = 0;  // grows from batch to batch
  std::int64_t created_ms_;
  std::int64_t ended_ms_ = 0;
  Bell::Clock::time_point forget_at_ = Bell::Clock::time_point::max();
  BatchState state_ = BatchState::running;
  std::size_t total_;
  std::deque<std::shared_ptr<const BatchItem>> items_;  // not in work yet
  std::set<std::shared_ptr<CallOff>> under_way_;
  std::deque<std::string> verdicts_;
  VerdictCounts counts_{};
  std::size_t bytes_ = 0;
  std::size_t readers_ = 0;
  Bell changed_;
};

// How a verdict is told. At most `most` bytes of each text.
std::string verdict_line(std::size_t number, const BatchItem& item, const Judgement& judgement,
                         std::size_t most);

}  // namespace asr
