// The daemon's side of one zygote: starts it, configures it for one environment, asks it for
// sandboxes.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/channel.hpp"
#include "wire/zygote_messages.hpp"

namespace asr {

// The program inside our own: in memory, sealed, so that nothing can replace it while it runs.
Result<UniqueFd> zygote_image();

struct LaunchedProcess {
  std::int32_t pid = -1;
  UniqueFd pidfd;
};

class ZygoteProcess {
 public:
  static asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> start(
      asio::any_io_executor executor, int image, wire::Configure configure);
  ~ZygoteProcess();
  ZygoteProcess(const ZygoteProcess&) = delete;
  ZygoteProcess& operator=(const ZygoteProcess&) = delete;

  // Calls `meanwhile` once the zygote has been asked, before waiting for its answer.
  asio::awaitable<Result<LaunchedProcess>> launch(wire::Create create, std::vector<UniqueFd> fds,
                                                  std::function<void()> meanwhile);
  bool is_alive() const noexcept { return alive_->load(); }
  bool idmaps() const noexcept { return configured_.idmaps; }
  int pid() const noexcept { return pid_; }

 private:
  ZygoteProcess(std::shared_ptr<Channel> channel, int pid, UniqueFd pidfd);

  std::shared_ptr<Channel> channel_;
  int pid_;
  UniqueFd pidfd_;
  std::shared_ptr<std::atomic<bool>> alive_;
  wire::Configured configured_;
};

}  // namespace asr
