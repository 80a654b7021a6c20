// The caller's stdin, stdout and stderr, without ever stopping the event loop: a slow reader must
// not keep signals from the program.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <optional>
#include <string>

namespace asr {

// One of the caller's descriptors. It stays blocking, because it is shared with whoever started us.
class CallerStream {
 public:
  CallerStream(const boost::asio::any_io_executor& executor, int fd);

  // False: nobody reads it any more.
  boost::asio::awaitable<bool> write(std::string data);
  // Nothing: its end.
  boost::asio::awaitable<std::optional<std::string>> read();

 private:
  using Direction = boost::asio::posix::stream_descriptor::wait_type;
  boost::asio::awaitable<void> ready(Direction direction);

  int fd_;
  boost::asio::posix::stream_descriptor waiter_;
  bool can_wait_ = false;  // Regular files are always ready, and epoll refuses them.
};

}  // namespace asr
