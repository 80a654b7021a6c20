// The small static program behind every sandbox. The daemon starts it from memory, as a zygote with
// its control socket at number 3, or as a keeper with a socket to listen on and the instance's lock
// at 3 and 4.

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "keeper/keeper.hpp"
#include "zygote/zygote.hpp"

int main(int argc, char** argv) {
  bool keeper = argc > 1 && std::string_view(argv[1]) == "keeper";
  constexpr int kControl = 3;
  constexpr int kLock = 4;
  int last = keeper ? kLock : kControl;
  ::syscall(SYS_close_range, last + 1, ~0U, 0);
  for (int fd = kControl; fd <= last; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::setsid();
  ::umask(022);
  if (keeper) {
    ::prctl(PR_SET_NAME, "asr-keeper", 0, 0, 0);
    // It outlives the daemon, and must hold on to nothing of the daemon's: nobody who reads the
    // daemon's stderr to its end is to wait for us.
    if (::chdir("/") != 0 || ::dup2(0, 2) < 0) return 1;
    return asr::run_keeper(kControl, kLock);
  }
  ::prctl(PR_SET_NAME, "asr-zygote", 0, 0, 0);
  // An own, empty session keyring: sandboxes inherit it, and must not inherit the daemon's.
  ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  return asr::run_zygote(kControl);
}
