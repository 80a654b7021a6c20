#include "cli/streams.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <string_view>

namespace asr {

namespace asio = boost::asio;

CallerStream::CallerStream(const asio::any_io_executor& executor, int fd)
    : fd_(fd), waiter_(executor) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return;
  boost::system::error_code ec;
  int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return;
  waiter_.assign(copy, ec);
  can_wait_ = !ec;
  if (ec) ::close(copy);
}

asio::awaitable<void> CallerStream::ready(Direction direction) {
  bool reading = direction == asio::posix::stream_descriptor::wait_read;
  pollfd now{fd_, static_cast<short>(reading ? POLLIN : POLLOUT), 0};
  if (!can_wait_ || ::poll(&now, 1, 0) != 0) co_return;
  boost::system::error_code ec;
  auto token = asio::redirect_error(asio::use_awaitable, ec);
  co_await waiter_.async_wait(direction, token);
  if (ec == asio::error::operation_aborted) throw boost::system::system_error(ec);
  if (ec) can_wait_ = false;
}

asio::awaitable<bool> CallerStream::write(std::string data) {
  std::string_view left = data;
  while (!left.empty()) {
    co_await ready(asio::posix::stream_descriptor::wait_write);
    // A pipe that is ready takes this much without blocking, and no more for certain.
    std::size_t most = can_wait_ ? PIPE_BUF : left.size();
    ssize_t n = ::write(fd_, left.data(), std::min(left.size(), most));
    if (n < 0 && errno != EINTR && errno != EAGAIN) co_return false;
    if (n > 0) left.remove_prefix(static_cast<std::size_t>(n));
  }
  co_return true;
}

asio::awaitable<std::optional<std::string>> CallerStream::read() {
  std::string buffer(std::size_t{64} * 1024, '\0');
  for (;;) {
    co_await ready(asio::posix::stream_descriptor::wait_read);
    ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) co_return std::nullopt;
    buffer.resize(static_cast<std::size_t>(n));
    co_return buffer;
  }
}

}  // namespace asr
