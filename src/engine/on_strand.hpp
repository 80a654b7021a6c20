// Runs a coroutine on an executor of its own choice and brings its result back to the caller's.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace asr {

template <class T>
boost::asio::awaitable<T> on_strand(boost::asio::any_io_executor strand,
                                    boost::asio::awaitable<T> work) {
  co_return co_await boost::asio::co_spawn(strand, std::move(work), boost::asio::use_awaitable);
}

}  // namespace asr
