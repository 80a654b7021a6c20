#include "store/commit_queue.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>

namespace asr {

using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

constexpr std::size_t kMostAtOnce = 256;  // So that a read never waits behind thousands of writes.
constexpr std::size_t kMostHere = 16;     // A caller has its own work to do.
constexpr int kLongLog = 1000;            // Pages; with journal_size_limit this bounds the log.
constexpr auto kIdle = 1s;
constexpr auto kRested = 1ms;      // Busier than this, sharing commits beats not waking a thread.
constexpr auto kGathering = 20ms;  // What nobody waits for.

Error ended_transaction() {
  return Error(Errc::internal, "a piece of work ended the transaction it was part of");
}

}  // namespace

CommitQueue::CommitQueue(Database& database) : database_(database) {}

CommitQueue::~CommitQueue() {
  {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [this] { return !lent_; });
  }
  asio::post(thread_, [this] {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      busy_ = true;
    }
    gather_timer_.cancel();
    idle_timer_.cancel();
    drain();
  });
  thread_.join();
}

bool CommitQueue::is_quick(const Job& job) const {
  return job.kind() == JobKind::write && job.durability() == Durability::process &&
         waiting_.size() < kMostHere && std::chrono::steady_clock::now() - last_work_ > kRested;
}

void CommitQueue::submit(std::unique_ptr<Job> job, Urgency urgency) {
  std::unique_lock lock(mutex_);
  bool here = urgency == Urgency::now && !busy_ && is_quick(*job);
  waiting_.push_back(std::move(job));
  if (urgency == Urgency::now) awaited_ = true;
  if (busy_) return;
  if (urgency == Urgency::soon) {
    if (!std::exchange(gathering_, true)) asio::post(thread_, [this] { gather(); });
    return;
  }
  busy_ = true;
  if (!here) return asio::post(thread_, [this] { drain(); });
  lent_ = true;
  awaited_ = false;
  Jobs jobs = std::exchange(waiting_, {});
  lock.unlock();
  work_here(std::move(jobs));
}

// The caller's thread has more to do than this: what came meanwhile, and what is slow, is left to
// the queue's own.
void CommitQueue::work_here(Jobs jobs) {
  work_off(std::move(jobs));
  std::lock_guard lock(mutex_);
  lent_ = false;
  given_back_.notify_all();
  last_work_ = std::chrono::steady_clock::now();
  int pages = database_.wal_pages();
  if (is_pressing() || pages >= kLongLog) return asio::post(thread_, [this] { drain(); });
  busy_ = false;
  bool gather_rest = !waiting_.empty() && !std::exchange(gathering_, true);
  bool watch = pages > 0 && !std::exchange(watching_, true);
  if (gather_rest || watch)
    asio::post(thread_, [this, gather_rest, watch] {
      if (gather_rest) gather();
      if (watch) watch_idleness();
    });
}

// What nobody waits for gathers again, however much work is going on.
bool CommitQueue::is_pressing() const {
  return awaited_ || waiting_.size() >= kMostAtOnce || (stopping_ && !waiting_.empty());
}

CommitQueue::Jobs CommitQueue::take() {
  std::lock_guard lock(mutex_);
  if (waiting_.size() <= kMostAtOnce) {
    awaited_ = false;
    return std::exchange(waiting_, {});
  }
  auto end = waiting_.begin() + kMostAtOnce;
  Jobs jobs(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return jobs;
}

// On the queue's thread, which has set busy_ or for which it was set.
void CommitQueue::drain() {
  for (;;) {
    work_off(take());
    // After the answers, so that nobody waits for it.
    if (database_.wal_pages() >= kLongLog) (void)database_.checkpoint();
    int pages = database_.wal_pages();
    std::lock_guard lock(mutex_);
    if (is_pressing()) continue;
    last_work_ = std::chrono::steady_clock::now();
    busy_ = stopping_;
    if (!waiting_.empty() && !std::exchange(gathering_, true)) gather();
    if (pages == 0 || watching_ || stopping_) return;
    watching_ = true;
    break;
  }
  watch_idleness();
}

void CommitQueue::work_off(Jobs jobs) {
  worker_ = std::this_thread::get_id();
  auto reads = std::stable_partition(jobs.begin(), jobs.end(),
                                     [](const auto& job) { return job->kind() == JobKind::write; });
  std::span<std::unique_ptr<Job>> writes(jobs.begin(), reads);
  while (!writes.empty()) writes = writes.subspan(commit_some(writes));
  std::for_each(reads, jobs.end(), [this](const auto& job) { read(*job); });
  worker_ = std::thread::id();
}

// One transaction for as many as go into it: how many that were.
std::size_t CommitQueue::commit_some(std::span<std::unique_ptr<Job>> jobs) {
  auto done = begin(jobs);
  if (!done) {
    abandon(jobs, done.error());
    return jobs.size();
  }
  std::size_t count = 0;
  if (jobs.size() == 1) done = run_alone(*jobs[count++]);
  while (done && count < jobs.size()) done = run_in_savepoint(*jobs[count++]);
  auto batch = jobs.first(count);
  if (done)
    if (auto committed = database_.execute("COMMIT"); !committed)
      done = fail(std::move(committed).error());
  if (!done)
    abandon(batch, done.error());
  else
    for (auto& job : batch) job->finish();
  return count;
}

Result<void> CommitQueue::begin(std::span<std::unique_ptr<Job>> jobs) {
  bool sync = std::any_of(jobs.begin(), jobs.end(),
                          [](const auto& job) { return job->durability() == Durability::machine; });
  Durability wanted = sync ? Durability::machine : Durability::process;
  if (durability_ != wanted) {
    TRY(database_.script(sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
    durability_ = wanted;
  }
  TRY(database_.execute("BEGIN IMMEDIATE"));
  return {};
}

// What goes wrong undoes the transaction: nobody else is in it.
Result<void> CommitQueue::run_alone(Job& job) {
  const Error* wrong = job.run(database_);
  if (wrong != nullptr) return fail(*wrong);
  if (!database_.in_transaction()) return fail(ended_transaction());
  return {};
}

// Fails only if the whole transaction is lost; what goes wrong with one job is undone and stays its
// own affair.
Result<void> CommitQueue::run_in_savepoint(Job& job) {
  TRY(database_.execute("SAVEPOINT job"));
  const Error* wrong = job.run(database_);
  // A full disk, an I/O error or lost memory make SQLite roll back all of it by itself.
  if (!database_.in_transaction()) {
    if (wrong != nullptr) return fail(*wrong);
    return fail(ended_transaction());
  }
  if (wrong != nullptr) TRY(database_.execute("ROLLBACK TO job"));
  TRY(database_.execute("RELEASE job"));
  return {};
}

void CommitQueue::abandon(std::span<std::unique_ptr<Job>> jobs, const Error& error) {
  if (database_.in_transaction()) (void)database_.execute("ROLLBACK");
  for (auto& job : jobs) {
    job->fail_with(error);
    job->finish();
  }
  // Once the log is in the file, it is written from its start again and needs no new space.
  if (error.code == Errc::exhausted) (void)database_.checkpoint();
}

// In a transaction that is always undone: a read that writes must not get away with it.
void CommitQueue::read(Job& job) {
  std::int64_t before = database_.total_changes();
  auto begun = database_.execute("BEGIN");
  if (begun)
    job.run(database_);
  else
    job.fail_with(begun.error());
  if (database_.in_transaction()) (void)database_.execute("ROLLBACK");
  if (database_.total_changes() != before)
    job.fail_with(Error(Errc::internal, "work that was to read only has written"));
  job.finish();
}

// More may come until the time is over; whoever is at work before takes them along.
void CommitQueue::gather() {
  gather_timer_.expires_after(kGathering);
  gather_timer_.async_wait([this](boost::system::error_code) {
    {
      std::lock_guard lock(mutex_);
      gathering_ = false;
      if (busy_ || waiting_.empty()) return;
      busy_ = true;
    }
    drain();
  });
}

void CommitQueue::watch_idleness() {
  idle_timer_.expires_after(kIdle);
  idle_timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) tidy_when_idle();
  });
}

void CommitQueue::tidy_when_idle() {
  {
    std::lock_guard lock(mutex_);
    bool resting = !busy_ && std::chrono::steady_clock::now() - last_work_ >= kIdle;
    if (!resting) return watch_idleness();
    busy_ = true;
    watching_ = false;
  }
  (void)database_.checkpoint();
  drain();
}

}  // namespace asr
