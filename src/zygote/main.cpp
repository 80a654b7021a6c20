// The small static program behind every sandbox. The daemon starts it from memory with one
// descriptor, its control socket, at number 3.

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "zygote/zygote.hpp"

int main() {
  constexpr int kControl = 3;
  ::syscall(SYS_close_range, kControl + 1, ~0U, 0);
  ::fcntl(kControl, F_SETFD, FD_CLOEXEC);
  ::setsid();
  ::umask(022);
  ::prctl(PR_SET_NAME, "asr-zygote", 0, 0, 0);
  // An own, empty session keyring: sandboxes inherit it, and must not inherit the daemon's.
  ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr);
  return asr::run_zygote(kControl);
}
