// Whoever works with SQLite does it alone: this queue's thread, or a caller who finds the database
// at rest and is quicker than a thread that must be woken. Writes that arrive while others are
// being committed share the next commit.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "store/job.hpp"
#include "store/sqlite.hpp"

namespace asr {

// Whether somebody waits for it. What nobody waits for gathers for some milliseconds.
enum class Urgency { now, soon };

class CommitQueue {
 public:
  explicit CommitQueue(Database& database);
  ~CommitQueue();  // Finishes what is queued.
  CommitQueue(const CommitQueue&) = delete;
  CommitQueue& operator=(const CommitQueue&) = delete;

  // From any thread. A read sees every write that was submitted before it, and writes are done in
  // the order in which they came.
  void submit(std::unique_ptr<Job> job, Urgency urgency = Urgency::now);
  // Whether the caller is itself a piece of work of this queue.
  bool is_at_work_here() const noexcept { return worker_.load() == std::this_thread::get_id(); }

 private:
  using Jobs = std::vector<std::unique_ptr<Job>>;

  bool is_quick(const Job& job) const;
  bool is_pressing() const;
  Jobs take();
  void drain();
  void work_off(Jobs jobs);
  void work_here(Jobs jobs);
  std::size_t commit_some(std::span<std::unique_ptr<Job>> jobs);
  Result<void> begin(std::span<std::unique_ptr<Job>> jobs);
  Result<void> run_alone(Job& job);
  Result<void> run_in_savepoint(Job& job);
  void abandon(std::span<std::unique_ptr<Job>> jobs, const Error& error);
  void read(Job& job);
  void gather();
  void watch_idleness();
  void tidy_when_idle();

  // Of whoever set busy_.
  Database& database_;
  Durability durability_ = Durability::process;  // What the connection is set to.
  std::atomic<std::thread::id> worker_;

  std::mutex mutex_;
  Jobs waiting_;
  bool busy_ = false;       // Somebody works, and will look at what waits.
  bool awaited_ = false;    // Somebody waits for one of those that wait.
  bool gathering_ = false;  // The thread will look at what waits.
  bool watching_ = false;   // The thread will look whether the database is at rest.
  bool stopping_ = false;
  bool lent_ = false;  // A caller works, and still touches this queue when its own job is done.
  std::condition_variable given_back_;
  std::chrono::steady_clock::time_point last_work_;

  boost::asio::thread_pool thread_{1};
  boost::asio::steady_timer gather_timer_{thread_};  // Both are the thread's own.
  boost::asio::steady_timer idle_timer_{thread_};
};

}  // namespace asr
