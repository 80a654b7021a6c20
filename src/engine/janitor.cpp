#include "engine/janitor.hpp"

#include <signal.h>

#include <boost/asio/post.hpp>
#include <thread>

#include "os/pidfd.hpp"

namespace asr {

using namespace std::chrono_literals;

Janitor::Janitor(std::shared_ptr<Cgroups> cgroups, std::shared_ptr<IdRanges> ids,
                 std::shared_ptr<FullNetwork> network)
    : cgroups_(std::move(cgroups)), ids_(std::move(ids)), network_(std::move(network)) {}

Janitor::~Janitor() { thread_.join(); }

void Janitor::bury(Remains remains) {
  ++backlog_;
  auto shared = std::make_shared<Remains>(std::move(remains));
  boost::asio::post(thread_, [this, shared] {
    clean(*shared);
    --backlog_;
  });
}

void Janitor::finish() {
  while (backlog_ > 0) std::this_thread::sleep_for(1ms);
}

void Janitor::clean(Remains& remains) {
  if (remains.pidfd) {
    (void)send_signal(remains.pidfd.get(), SIGKILL);
    bool ended = wait_for_end(remains.pidfd.get(), 20ms);
    if (!ended) {
      cgroups_->hasten_end(remains.group);
      ended = wait_for_end(remains.pidfd.get(), 20s);
    }
    if (!ended) {
      ++leaked_;  // The ids stay taken: something still runs under them.
      return;
    }
  }
  // Before its ids, which are its address.
  if (remains.network == Network::full) network_->detach(remains.first_id);
  // Between the end of a process and its reaping its groups are still busy; the zygote does it at
  // once.
  auto pause = 100us;
  for (int round = 0; round < 200; ++round) {
    if (cgroups_->give_back(remains.group)) {
      if (remains.first_id != 0) ids_->give_back(remains.first_id);
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, 50ms);
  }
  ++leaked_;
}

}  // namespace asr
