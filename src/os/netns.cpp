#include "os/netns.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace asr {

namespace {

Result<void> on_own_thread(const NetworkWork& enter, const NetworkWork& work) {
  Result<void> result;
  std::thread thread([&] {
    result = enter();
    if (result) result = work();
  });
  thread.join();
  return result;
}

}  // namespace

Result<void> in_network_of(int pidfd, const NetworkWork& work) {
  auto enter = [&]() -> Result<void> {
    if (::setns(pidfd, CLONE_NEWNET) != 0) return fail_errno("enter network namespace");
    return {};
  };
  return on_own_thread(enter, work);
}

Result<void> in_new_network(const NetworkWork& work) {
  auto enter = []() -> Result<void> {
    if (::unshare(CLONE_NEWNET) != 0) return fail_errno("make network namespace");
    return {};
  };
  return on_own_thread(enter, work);
}

Result<UniqueFd> own_network() {
  UniqueFd fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open network namespace");
  return fd;
}

}  // namespace asr
