#include "engine/pool.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace asr {

using namespace std::chrono_literals;

namespace {
constexpr auto kBurst = 8ms;
constexpr auto kTrusted = 1s;  // So long after its first answer it is not asked again.
}  // namespace

Pool::Pool(asio::any_io_executor executor, SandboxSpec spec, PoolOptions options, Make make)
    : executor_(std::move(executor)),
      spec_(std::move(spec)),
      options_(std::move(options)),
      make_(std::move(make)) {}

asio::awaitable<Result<std::shared_ptr<Sandbox>>> Pool::make_one() {
  auto making = make_(spec_);
  auto sandbox = CO_TRY(co_await std::move(making));
  if (options_.prepare) {
    auto preparing = options_.prepare(sandbox);
    co_await std::move(preparing);
  }
  co_return sandbox;
}

std::optional<Pool::Ready> Pool::pop() {
  std::lock_guard lock(mutex_);
  if (ready_.empty()) return std::nullopt;
  Ready ready = std::move(ready_.front());
  ready_.pop_front();
  return ready;
}

bool Pool::put(std::shared_ptr<Sandbox> sandbox) {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  ready_.push_back({std::move(sandbox), Clock::now()});
  return true;
}

asio::awaitable<std::shared_ptr<Sandbox>> Pool::take() {
  while (auto ready = pop()) {
    auto sandbox = std::move(ready->sandbox);
    if (!sandbox->is_alive()) continue;
    if (Clock::now() - ready->answered > kTrusted) {
      auto pinging = sandbox->ping();
      if (!co_await std::move(pinging)) continue;
    }
    {
      std::lock_guard lock(mutex_);
      ++warm_;
    }
    refill_soon();
    co_return sandbox;
  }
  refill();
  co_return nullptr;
}

void Pool::count_cold() {
  std::lock_guard lock(mutex_);
  ++cold_;
}

// Those who come in a burst need the processors themselves: while half of the pool is there, making
// new ones waits a moment.
void Pool::refill_soon() {
  {
    std::lock_guard lock(mutex_);
    bool scarce = ready_.size() * 2 < options_.size;
    if (!scarce && refill_waits_) return;
    if (!scarce) {
      refill_waits_ = true;
      asio::co_spawn(executor_, refill_later(), asio::detached);
      return;
    }
  }
  refill();
}

asio::awaitable<void> Pool::refill_later() {
  auto self = shared_from_this();
  asio::steady_timer pause(executor_, kBurst);
  co_await pause.async_wait(asio::use_awaitable);
  {
    std::lock_guard lock(mutex_);
    refill_waits_ = false;
  }
  refill();
}

// Starts as many makers as may run at once and are needed.
void Pool::refill() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || ready_.size() + making_ >= options_.size || making_ >= options_.refill_at_once)
        return;
      ++making_;
    }
    asio::co_spawn(executor_, refill_one(), asio::detached);
  }
}

asio::awaitable<void> Pool::refill_one() {
  auto self = shared_from_this();
  auto making = make_one();
  auto made = co_await std::move(making);
  std::uint32_t failures = 0;
  {
    std::lock_guard lock(mutex_);
    failures = failures_ = made ? 0 : std::min(failures_ + 1, 10U);
  }
  if (made) put(*std::move(made));
  if (failures > 0) {
    // What failed once fails again at once: wait longer each time, up to some seconds.
    asio::steady_timer pause(executor_, 10ms * (1U << failures));
    co_await pause.async_wait(asio::use_awaitable);
  }
  {
    std::lock_guard lock(mutex_);
    --making_;
  }
  refill();
}

asio::awaitable<Result<void>> Pool::fill() {
  auto self = shared_from_this();
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || ready_.size() >= options_.size) co_return Result<void>();
    }
    auto making = make_one();
    auto made = co_await std::move(making);
    if (!made) co_return fail(std::move(made).error());
    put(*std::move(made));
  }
}

void Pool::close() {
  std::deque<Ready> ending;
  std::lock_guard lock(mutex_);
  closed_ = true;
  ending.swap(ready_);
}

asio::awaitable<void> Pool::settle() {
  auto self = shared_from_this();
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (making_ == 0) co_return;
    }
    asio::steady_timer pause(executor_, 1ms);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

PoolState Pool::state() const {
  std::lock_guard lock(mutex_);
  return {pool_key(spec_), static_cast<std::uint32_t>(ready_.size()), options_.size, warm_, cold_};
}

}  // namespace asr
