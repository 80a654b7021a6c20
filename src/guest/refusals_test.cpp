#include "guest/refusals.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "os/seqpacket.hpp"

namespace asr {
namespace {

constexpr int kVsock = 40;
constexpr int kMultipathTcp = 262;

// Tells of these three, whatever their arguments; -1 if the kernel does not let us.
int install_telling() {
  sock_filter told{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF};
  std::vector<sock_filter> filter{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 3, 0, SYS_mount},
      {BPF_JMP | BPF_JEQ | BPF_K, 2, 0, SYS_socket},
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, SYS_keyctl},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
      told,
  };
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

// A process that runs `body` behind such a filter, and exits with what it returns.
class Refused : public testing::Test {
 protected:
  void start(const std::function<int()>& body) {
    SocketPair sockets = *seqpacket_pair();
    child_ = ::fork();
    if (child_ == 0) {
      ::setpgid(0, 0);
      int listener = install_telling();
      if (listener < 0) ::_exit(200);
      if (!send_packet(sockets.second.get(), "l", std::array{listener})) ::_exit(201);
      ::close(listener);
      ::_exit(body());
    }
    ::setpgid(child_, child_);
    sockets.second.reset();
    std::array<char, 16> buffer{};
    auto received = receive_packet(sockets.first.get(), buffer);
    if (!received || received->fds.size() != 1) GTEST_SKIP() << "somebody listens already";
    listener_.emplace(std::move(received->fds[0]), SyscallTier::strict, 1);
  }
  void TearDown() override {
    if (child_ > 0 && !status_) ::kill(-child_, SIGKILL);
  }
  bool somebody_waits(int millis = 10'000) {
    pollfd ready{listener_->waits_on(), POLLIN, 0};
    return ::poll(&ready, 1, millis) > 0 && (ready.revents & POLLIN) != 0;
  }
  // Answers until it has ended; its wait status.
  int serve() {
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) == 0)
      if (somebody_waits(10)) listener_->answer_some();
    status_ = status;
    return status;
  }

  std::optional<RefusalListener> listener_;
  int child_ = -1;
  std::optional<int> status_;
};

bool fails_with(int err, long result) { return result == -1 && errno == err; }

TEST_F(Refused, IsAnsweredAsTheRulesSay) {
  start([] {
    if (!fails_with(EPERM, ::syscall(SYS_mount, 0, 8, 0, 0, 0))) return 1;
    if (!fails_with(EPERM, ::syscall(SYS_keyctl, 999, 0, 0, 0, 0))) return 2;
    if (!fails_with(EAFNOSUPPORT, ::socket(kVsock, SOCK_STREAM, 0))) return 3;
    if (!fails_with(EPROTONOSUPPORT, ::socket(AF_INET, SOCK_STREAM, kMultipathTcp))) return 4;
    // What the rules would allow is not let through, either.
    if (!fails_with(EPERM, ::socket(AF_UNIX, SOCK_STREAM, 0))) return 5;
    return 0;
  });
  if (IsSkipped()) return;
  EXPECT_EQ(listener_->counts(), CallCounts());
  EXPECT_EQ(serve(), 0);
  EXPECT_EQ(listener_->counts(), (CallCounts{{SYS_mount, 1}, {SYS_keyctl, 1}, {SYS_socket, 3}}));
}

TEST_F(Refused, IsAnsweredSomeAtATime) {
  constexpr std::uint64_t kCallers = 200;
  start([] {
    for (std::uint64_t i = 0; i < kCallers; ++i)
      if (::fork() == 0) ::_exit(fails_with(EPERM, ::syscall(SYS_mount, 0, 8, 0, 0, 0)) ? 0 : 1);
    for (int status = 0; ::wait(&status) > 0;)
      if (status != 0) return 1;
    return 0;
  });
  if (IsSkipped()) return;
  ::usleep(300'000);  // for most of them to be there
  ASSERT_TRUE(somebody_waits());
  listener_->answer_some();
  std::uint64_t first = listener_->counts()->at(SYS_mount);
  EXPECT_LE(first, 64U);
  EXPECT_GE(first, 1U);
  EXPECT_EQ(serve(), 0);
  EXPECT_EQ(listener_->counts(), (CallCounts{{SYS_mount, kCallers}}));
}

TEST_F(Refused, CallerThatDiedKeepsNobodyWaiting) {
  start([] { return ::syscall(SYS_mount, 0, 8, 0, 0, 0) == -1 ? 0 : 1; });
  if (IsSkipped()) return;
  ASSERT_TRUE(somebody_waits());
  ::kill(child_, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child_, &status, 0), child_);
  status_ = status;
  listener_->answer_some();
  EXPECT_EQ(listener_->counts(), CallCounts());
}

// The call is begun anew after the signal, and is one call all the same.
TEST_F(Refused, CallThatASignalInterruptedIsCountedOnce) {
  start([] {
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    nothing.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &nothing, nullptr);
    return fails_with(EPERM, ::syscall(SYS_mount, 0, 8, 0, 0, 0)) ? 0 : 1;
  });
  if (IsSkipped()) return;
  ASSERT_TRUE(somebody_waits());
  for (int i = 0; i < 20; ++i) {
    ::kill(child_, SIGUSR1);
    ::usleep(1000);
  }
  EXPECT_EQ(serve(), 0);
  EXPECT_EQ(listener_->counts(), (CallCounts{{SYS_mount, 1}}));
}

TEST(RefusalListener, WithoutAListenerNothingIsKnown) {
  RefusalListener nobody;
  EXPECT_EQ(nobody.waits_on(), -1);
  nobody.answer_some();
  EXPECT_EQ(nobody.counts(), std::nullopt);
}

TEST(RefusalListener, WhatCameSince) {
  EXPECT_EQ(more_than({}, {}), CallCounts());
  EXPECT_EQ(more_than({{1, 2}, {3, 4}}, {{1, 2}, {3, 5}, {9, 7}}), (CallCounts{{3, 1}, {9, 7}}));
}

}  // namespace
}  // namespace asr
