// What a command-line program needs of an event loop: run one piece of work to its end on this
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "base/result.hpp"

namespace asr {

template <class T>
T run_to_end(boost::asio::io_context& context, boost::asio::awaitable<T> work) {
  std::optional<T> result;
  std::exception_ptr failure;
  boost::asio::co_spawn(context, std::move(work), [&](std::exception_ptr error, T value) {
    failure = std::move(error);
    result = std::move(value);
    context.stop();
  });
  context.restart();
  context.run();
  if (failure) std::rethrow_exception(failure);
  return *std::move(result);
}

// Runs `work` with `aside` beside it. When one ends the other is cancelled, and both have ended
// when this returns.
template <class T>
boost::asio::awaitable<Result<T>> with_aside(boost::asio::awaitable<Result<T>> work,
                                             boost::asio::awaitable<void> aside) {
  namespace asio = boost::asio;
  auto executor = co_await asio::this_coro::executor;
  auto both = asio::experimental::make_parallel_group(
      asio::co_spawn(executor, std::move(work), asio::deferred),
      asio::co_spawn(executor, std::move(aside), asio::deferred));
  auto [order, failure, result, aside_failure] =
      co_await both.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  if (order[0] == 1) {
    if (aside_failure) std::rethrow_exception(aside_failure);
    co_return fail(Errc::conflict, "interrupted");
  }
  if (failure) std::rethrow_exception(failure);
  co_return std::move(result);
}

}  // namespace asr
