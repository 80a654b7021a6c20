// Runs a coroutine to its end on this thread: what a command-line program needs of an event loop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <optional>

namespace asr {

template <class T>
T run_to_end(boost::asio::io_context& context, boost::asio::awaitable<T> work) {
  std::optional<T> result;
  std::exception_ptr failure;
  boost::asio::co_spawn(context, std::move(work), [&](std::exception_ptr error, T value) {
    failure = error;
    result = std::move(value);
    context.stop();
  });
  context.restart();
  context.run();
  if (failure) std::rethrow_exception(failure);
  return *std::move(result);
}

}  // namespace asr
