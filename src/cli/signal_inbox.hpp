// Signals as something to wait for, beside everything else: none of them ends the program or its
// half-done work by itself.
#pragma once

#include <signal.h>

#include <optional>

#include "base/unique_fd.hpp"

namespace asr {

// While it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP and SIGWINCH come here, those to
// threads that are started meanwhile included, and SIGPIPE is ignored.
class SignalInbox {
 public:
  SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;
  ~SignalInbox();

  int descriptor() const noexcept { return descriptor_.get(); }  // readable: one waits
  // The next one; nothing if none waits.
  std::optional<int> take();

 private:
  sigset_t before_{};
  struct sigaction pipe_before_ {};
  UniqueFd descriptor_;
};

inline bool wants_the_end(int signal) {
  return signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace asr
