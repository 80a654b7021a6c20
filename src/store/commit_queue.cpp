#include "store/commit_queue.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>

namespace asr {

using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

constexpr std::size_t kMostAtOnce = 256;  // So that a read never waits behind thousands of writes.
constexpr int kLongLog = 1000;            // Pages; with journal_size_limit this bounds the log.
constexpr auto kIdle = 1s;

}  // namespace

CommitQueue::CommitQueue(Database& database) : database_(database) {}

CommitQueue::~CommitQueue() {
  asio::post(thread_, [this] {
    stopping_ = true;
    timer_.cancel();
  });
  thread_.join();
}

void CommitQueue::submit(std::unique_ptr<Job> job) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(job));
  if (std::exchange(draining_, true)) return;
  asio::post(thread_, [this] { drain(); });
}

bool CommitQueue::is_this_thread() noexcept {
  return thread_.get_executor().running_in_this_thread();
}

CommitQueue::Jobs CommitQueue::take() {
  std::lock_guard lock(mutex_);
  if (waiting_.size() <= kMostAtOnce) {
    draining_ = !waiting_.empty();
    return std::exchange(waiting_, {});
  }
  auto end = waiting_.begin() + kMostAtOnce;
  Jobs jobs(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return jobs;
}

void CommitQueue::drain() {
  for (Jobs jobs = take(); !jobs.empty(); jobs = take()) {
    auto reads = std::stable_partition(
        jobs.begin(), jobs.end(), [](const auto& job) { return job->kind() == JobKind::write; });
    std::span<std::unique_ptr<Job>> writes(jobs.begin(), reads);
    while (!writes.empty()) writes = writes.subspan(commit_some(writes));
    std::for_each(reads, jobs.end(), [this](const auto& job) { read(*job); });
    // After the answers, so that nobody waits for it.
    if (database_.wal_pages() >= kLongLog) (void)database_.checkpoint();
  }
  watch_idleness();
}

// One transaction for as many as go into it: how many that were.
std::size_t CommitQueue::commit_some(std::span<std::unique_ptr<Job>> jobs) {
  ++batches_;
  auto done = begin(jobs);
  if (!done) {
    abandon(jobs, done.error());
    return jobs.size();
  }
  std::size_t count = 0;
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

// Fails only if the whole transaction is lost; what goes wrong with one job is undone and stays its
// own affair.
Result<void> CommitQueue::run_in_savepoint(Job& job) {
  TRY(database_.execute("SAVEPOINT job"));
  const Error* wrong = job.run(database_);
  // A full disk, an I/O error or lost memory make SQLite roll back all of it by itself.
  if (!database_.in_transaction()) {
    if (wrong != nullptr) return fail(*wrong);
    return fail(Errc::internal, "a piece of work ended the transaction it was part of");
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

void CommitQueue::watch_idleness() {
  if (watching_ || stopping_ || database_.wal_pages() == 0) return;
  watching_ = true;
  batches_at_last_look_ = batches_;
  timer_.expires_after(kIdle);
  timer_.async_wait([this](boost::system::error_code ec) {
    if (!ec) tidy_when_idle();
  });
}

void CommitQueue::tidy_when_idle() {
  watching_ = false;
  if (batches_ == batches_at_last_look_) (void)database_.checkpoint();
  watch_idleness();
}

}  // namespace asr
