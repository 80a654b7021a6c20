#include "os/pidfd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/scope_exit.hpp"

namespace asr {

Result<UniqueFd> open_pidfd(int pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return fail_errno("pidfd_open");
  return fd;
}

Result<void> send_signal(int pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0 || errno == ESRCH) return {};
  return fail_errno("pidfd_send_signal");
}

bool wait_for_end(int pidfd, std::chrono::milliseconds most) {
  auto deadline = std::chrono::steady_clock::now() + most;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd poll{pidfd, POLLIN, 0};
    int n = ::poll(&poll, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

Result<Spawned> spawn_image(int executable, const char* const* argv, std::span<const int> inherit) {
  // Copies first, out of the way: one of them may have a number that another is to get.
  int free = 3 + static_cast<int>(inherit.size());
  std::vector<UniqueFd> copies;
  for (int fd : inherit) {
    copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, free));
    if (!copies.back()) return fail_errno("dup");
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ScopeExit destroy_actions([&] { ::posix_spawn_file_actions_destroy(&actions); });
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_adddup2(&actions, 0, 1);
  for (std::size_t i = 0; i < copies.size(); ++i)
    ::posix_spawn_file_actions_adddup2(&actions, copies[i].get(), 3 + static_cast<int>(i));

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ScopeExit destroy_attributes([&] { ::posix_spawnattr_destroy(&attributes); });
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

  UniqueFd image(::fcntl(executable, F_DUPFD_CLOEXEC, free));
  std::string path = "/proc/self/fd/" + std::to_string(image.get());
  char* const no_environment[] = {nullptr};
  Spawned spawned;
  int err = ::posix_spawn(&spawned.pid, path.c_str(), &actions, &attributes,
                          const_cast<char* const*>(argv), no_environment);
  if (err != 0) return fail(errno_error(err, "start " + std::string(argv[0])));
  spawned.pidfd = TRY(open_pidfd(spawned.pid));
  return spawned;
}

}  // namespace asr
