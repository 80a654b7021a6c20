// What was acknowledged is there after SIGKILL, whenever it comes.
#include <signal.h>
#include <sys/wait.h>

#include <array>

#include "os/pidfd.hpp"
#include "store/audit_records.hpp"
#include "store/event_records.hpp"
#include "store/rows.hpp"
#include "store/store_testing.hpp"

namespace asr {
namespace {

using test::must;
namespace asio = boost::asio;

constexpr std::int64_t kWriters = 8;

auto one_write(const Store* store, std::int64_t me, std::int64_t n) {
  return [store, me, n](Database& db) -> Result<void> {
    TRY(append_event(db, {.at_ms = n, .type = std::to_string(me), .data = std::string(500, 'x')}));
    TRY(append_audit(db, store->secrets(), {.at_ms = n, .actor = std::to_string(me)}));
    return {};
  };
}

// One of several in the child: writes for ever, and says over the pipe which of its writes were
// acknowledged.
asio::awaitable<void> write_for_ever(Store* store, int pipe, std::int64_t me) {
  for (std::int64_t n = 0;; ++n) {
    auto durability = n % 16 == 0 ? Durability::machine : Durability::process;
    auto work = one_write(store, me, n);
    auto written = co_await store->write(std::move(work), durability);
    std::array<std::int64_t, 2> message{me, n};
    if (!written || ::write(pipe, message.data(), sizeof message) != sizeof message) ::_exit(3);
  }
}

[[noreturn]] void child(const std::filesystem::path& folder, int pipe) {
  auto store = Store::open(folder);
  if (!store) ::_exit(2);
  asio::thread_pool threads(2);
  for (std::int64_t me = 0; me < kWriters; ++me)
    asio::co_spawn(threads, write_for_ever(store->get(), pipe, me), asio::use_future);
  threads.join();
  ::_exit(4);
}

using Counts = std::array<std::int64_t, kWriters>;

// How many writes of each writer were acknowledged before it was killed, in the middle of others.
Counts run_and_kill(const std::filesystem::path& folder, int kill_after) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  // No exec is needed: this process has one thread while no store is open.
  pid_t pid = ::fork();
  if (pid == 0) child(folder, to.get());
  to.reset();
  UniqueFd process = must(open_pidfd(pid));

  Counts counts{};
  std::array<std::int64_t, 2> message{};
  for (int n = 0; ::read(from.get(), message.data(), sizeof message) == sizeof message; ++n) {
    counts.at(static_cast<std::size_t>(message[0])) = message[1] + 1;
    if (n == kill_after) must(send_signal(process.get(), SIGKILL));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  return counts;
}

// Each writer counts up without a gap, so the number of its rows tells whether one is missing.
Result<Counts> count_rows(Database& db) {
  Counts counts{};
  for (std::size_t me = 0; me < counts.size(); ++me)
    counts[me] =
        TRY(one_number(db, 0, "SELECT count(*) FROM events WHERE type = ?1", std::to_string(me)));
  return counts;
}

TEST(StoreCrash, NothingAcknowledgedIsLost) {
  test::ScratchFolder folder;
  Counts before{};
  for (int round = 0; round < 10; ++round) {
    Counts acknowledged = run_and_kill(folder.path(), 97 * round);
    auto store = must(Store::open(folder.path()));
    EXPECT_TRUE(store->notices().empty()) << store->notices().front();
    Counts rows = must(store->run(count_rows));
    for (std::size_t me = 0; me < rows.size(); ++me) {
      EXPECT_GE(rows[me] - before[me], acknowledged[me]);
      EXPECT_LE(rows[me] - before[me], acknowledged[me] + 1) << "one may be done and not yet said";
    }
    before = rows;
    auto verify = [&](Database& db) { return verify_audit(db, store->secrets()); };
    auto verdict = must(store->run(verify));
    EXPECT_TRUE(verdict.ok) << verdict.why;
  }
}

}  // namespace
}  // namespace asr
