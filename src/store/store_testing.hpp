// What the tests of the store itself share.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include "store/record_testing.hpp"
#include "store/store.hpp"

namespace asr::test {

// Threads on which coroutines wait for the store. Declared before it, to outlive it.
class Loop {
 public:
  ~Loop() { threads_.join(); }
  template <class T>
  auto spawn(boost::asio::awaitable<T> work) {
    return boost::asio::co_spawn(threads_, std::move(work), boost::asio::use_future);
  }
  template <class T>
  T wait(boost::asio::awaitable<T> work) {
    return spawn(std::move(work)).get();
  }

 private:
  boost::asio::thread_pool threads_{2};
};

}  // namespace asr::test
