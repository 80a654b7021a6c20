// The engine's side of the keeper: what it is given, and a new one when it dies.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/channel.hpp"
#include "wire/keeper_messages.hpp"

namespace asr {

// One thing to be kept. Names of what belongs together begin alike: "sandbox", "sandbox/7".
struct Keepsake {
  std::string name;
  std::string blob;
  std::vector<UniqueFd> fds;
};

// What the last daemon of an instance had left with the keeper.
struct Inheritance {
  std::vector<Keepsake> things;
  std::uint32_t epoch = 0;
  UniqueFd lock;
};

// Connects to the keeper of the instance whose folder `dir` is; a process of another user is none.
Result<UniqueFd> reach_keeper(int dir);
Result<Inheritance> take_all(int keeper, std::chrono::milliseconds patience);
// Ends one that cannot be talked to, and with it what it holds.
void end_keeper(int keeper);

// Safe from any thread; works on a strand of its own.
class KeeperLink : public std::enable_shared_from_this<KeeperLink> {
 public:
  struct Settings {
    UniqueFd image;  // the inner executable
    std::string dir;
    UniqueFd lock;
    std::chrono::milliseconds patience{0};
    std::uint32_t epoch = 1;
    std::function<void(std::string_view)> log;
  };
  KeeperLink(const asio::any_io_executor& executor, Settings settings);

  // With the connection to a keeper that is there, or without one: starts it. `renewed` is called
  // whenever a new keeper has taken the place of one that died, and must be given everything again.
  Result<void> open(UniqueFd connected, std::function<void()> renewed);

  asio::awaitable<Result<void>> keep(Keepsake thing);  // It is kept when this returns.
  void save(Keepsake thing);                           // The same, some time soon.
  void forget(std::string name);

  asio::awaitable<void> quit();   // Ends the keeper, and waits for that.
  asio::awaitable<void> leave();  // Lets it live for the next daemon.
  void end_now() noexcept;        // Kills it, unless one of these was called.

 private:
  struct Outgoing {
    std::uint32_t id = 0;
    std::variant<wire::Keep, wire::Forget> message;
    std::vector<UniqueFd> fds;
  };

  asio::awaitable<Result<void>> keep_on_strand(Keepsake thing);
  asio::awaitable<void> end_on_strand(bool quit);
  asio::awaitable<void> start_another();
  Result<void> start();
  Result<void> use(UniqueFd socket);
  void enqueue(Outgoing outgoing);
  void drain();
  asio::awaitable<void> drain_later();
  void reap(std::chrono::milliseconds within) noexcept;
  void watch(int pid, UniqueFd pidfd);

  asio::any_io_executor strand_;
  Settings settings_;
  UniqueFd dir_;
  std::function<void()> renewed_;
  std::shared_ptr<Channel> channel_;
  std::deque<Outgoing> outgoing_;  // what the keeper's socket had no room for
  bool draining_ = false;
  Channel::Clock::time_point started_;
  std::atomic<bool> ending_{false};
  std::mutex process_mutex_;  // for the two below
  int pid_ = -1;
  UniqueFd pidfd_;
};

}  // namespace asr
