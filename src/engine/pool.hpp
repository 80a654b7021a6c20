// Warm sandboxes of one kind, ready to be handed out, refilled in the background.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/engine.hpp"

namespace asr {

// Never the reason for an error: an empty pool means a cold start.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  using Make = std::function<asio::awaitable<Result<std::shared_ptr<Sandbox>>>(SandboxSpec)>;

  Pool(asio::any_io_executor executor, SandboxSpec spec, PoolOptions options, Make make);

  // A sandbox that lives and answers, or nothing. Others are dropped on the way.
  asio::awaitable<std::shared_ptr<Sandbox>> take();
  asio::awaitable<Result<void>> fill();  // Returns when it is full.
  void close();                          // No more refills; those inside are destroyed.
  asio::awaitable<void> settle();        // Returns when nothing is being made any more.
  PoolState state() const;
  void count_cold();

 private:
  using Clock = std::chrono::steady_clock;
  struct Ready {
    std::shared_ptr<Sandbox> sandbox;
    Clock::time_point answered;
  };
  std::optional<Ready> pop();
  void refill();
  void refill_soon();
  asio::awaitable<void> refill_later();
  asio::awaitable<void> refill_one();
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> make_one();
  bool put(std::shared_ptr<Sandbox> sandbox);

  asio::any_io_executor executor_;
  SandboxSpec spec_;
  PoolOptions options_;
  Make make_;
  mutable std::mutex mutex_;
  std::deque<Ready> ready_;
  std::uint32_t making_ = 0;
  std::uint64_t warm_ = 0;
  std::uint64_t cold_ = 0;
  std::uint32_t failures_ = 0;
  bool closed_ = false;
  bool refill_waits_ = false;  // for the end of a burst
};

}  // namespace asr
