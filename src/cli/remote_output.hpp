// What a command of a session writes, while it writes it. A thread follows the server's events, and
// takes them up again where a lost connection ended: sessions outlive the server.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "cli/remote.hpp"
#include "engine/sandbox.hpp"

namespace asr {

class RemoteOutput {
 public:
  // `request`: as in POST …/commands.
  RemoteOutput(asio::any_io_executor executor, Remote remote, std::string session,
               json::object request);
  RemoteOutput(const RemoteOutput&) = delete;
  RemoteOutput& operator=(const RemoteOutput&) = delete;
  ~RemoteOutput();  // The command goes on.

  // The command's id, once it runs.
  asio::awaitable<Result<std::string>> started();
  // The next output, or nothing after the last. Not calling it makes the program wait.
  asio::awaitable<Result<std::optional<OutputChunk>>> read();
  // How it ended, as the server tells it.
  asio::awaitable<Result<json::value>> ended();
  asio::awaitable<bool> ends_within(std::chrono::milliseconds time);

  void drop(OutputChunk::Stream stream);  // Nobody wants it any more.
  void give_up(Error error);              // What read() and the others say from now on.

 private:
  struct Shared;
  class Follower;

  std::shared_ptr<Shared> shared_;
  std::jthread thread_;
};

}  // namespace asr
