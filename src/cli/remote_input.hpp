// The caller's input on its way to a command of a session. A thread sends it; what comes meanwhile
// is gathered and goes with the next request.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "cli/remote.hpp"

namespace asr {

class RemoteInput {
 public:
  // `lost` is told, on the thread, when nobody knows how much of it has arrived.
  RemoteInput(boost::asio::any_io_executor executor, Remote remote, std::string path, Repeat repeat,
              std::function<void(Error)> lost);
  RemoteInput(const RemoteInput&) = delete;
  RemoteInput& operator=(const RemoteInput&) = delete;
  ~RemoteInput();  // What was not sent is not sent any more.

  // Returns when there is room for more; with the error of an earlier request if there was one.
  boost::asio::awaitable<Result<void>> write(std::string data);
  boost::asio::awaitable<Result<void>> close();  // Returns when all was sent.

 private:
  struct Shared;
  static void send_all(const std::stop_token& unwanted, Shared& shared, Remote remote,
                       const std::string& path, Repeat repeat,
                       const std::function<void(Error)>& lost);

  std::shared_ptr<Shared> shared_;
  std::jthread thread_;
};

}  // namespace asr
