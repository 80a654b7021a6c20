#include "cli/signal_inbox.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

namespace asr {

SignalInbox::SignalInbox() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH})
    ::sigaddset(&wanted, signal);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &pipe_before_);
  descriptor_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

SignalInbox::~SignalInbox() {
  while (take()) {
  }
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalInbox::take() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace asr
