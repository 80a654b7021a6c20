// The one thread on which everything of SQLite happens. Writes that arrive while others are being
// committed share the next commit.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "store/job.hpp"
#include "store/sqlite.hpp"

namespace asr {

class CommitQueue {
 public:
  explicit CommitQueue(Database& database);
  ~CommitQueue();  // Finishes what is queued.
  CommitQueue(const CommitQueue&) = delete;
  CommitQueue& operator=(const CommitQueue&) = delete;

  // From any thread. A read sees every write that was submitted before it.
  void submit(std::unique_ptr<Job> job);
  bool is_this_thread() noexcept;

 private:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  Jobs take();
  void drain();
  std::size_t commit_some(std::span<std::unique_ptr<Job>> jobs);
  Result<void> begin(std::span<std::unique_ptr<Job>> jobs);
  Result<void> run_in_savepoint(Job& job);
  void abandon(std::span<std::unique_ptr<Job>> jobs, const Error& error);
  void read(Job& job);
  void watch_idleness();
  void tidy_when_idle();

  Database& database_;
  Durability durability_ = Durability::process;  // What the connection is set to.
  std::uint64_t batches_ = 0;
  std::uint64_t batches_at_last_look_ = 0;
  bool watching_ = false;
  bool stopping_ = false;

  std::mutex mutex_;
  Jobs waiting_;
  bool draining_ = false;

  boost::asio::thread_pool thread_{1};
  boost::asio::steady_timer timer_{thread_};
};

}  // namespace asr
