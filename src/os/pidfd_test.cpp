#include "os/pidfd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/scope_exit.hpp"
#include "os/seqpacket.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;

int forked_sleeper() {
  int pid = ::fork();
  if (pid == 0)
    for (;;) ::pause();
  return pid;
}

TEST(Pidfd, SeesTheEndOfItsProcess) {
  int pid = forked_sleeper();
  ASSERT_GT(pid, 0);
  auto pidfd = open_pidfd(pid);
  ASSERT_TRUE(pidfd);
  EXPECT_FALSE(wait_for_end(pidfd->get(), 20ms));
  EXPECT_TRUE(send_signal(pidfd->get(), SIGKILL));
  EXPECT_TRUE(wait_for_end(pidfd->get(), 5s));
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(send_signal(pidfd->get(), SIGKILL)) << "a process that is gone needs no signal";
  EXPECT_TRUE(wait_for_end(pidfd->get(), 0ms));
}

TEST(Pidfd, NoProcessIsAnError) {
  EXPECT_FALSE(open_pidfd(0));
  EXPECT_FALSE(open_pidfd(-1));
  EXPECT_FALSE(open_pidfd(0x7fffffff));
}

// Runs a shell from a descriptor; what it says on descriptor 3.
std::string said_by(int executable, const char* script) {
  auto pair = seqpacket_pair();
  const char* argv[] = {"sh", "-c", script, nullptr};
  std::array<int, 1> inherit{pair->second.get()};
  auto spawned = spawn_image(executable, argv, inherit);
  pair->second.reset();
  if (!spawned) return "not started: " + spawned.error().what;
  ScopeExit reap([&] { ::waitpid(spawned->pid, nullptr, 0); });
  if (!wait_for_end(spawned->pidfd.get(), 10s)) (void)send_signal(spawned->pidfd.get(), SIGKILL);
  std::vector<char> buffer(kMaxPacket);
  auto received = receive_packet(pair->first.get(), buffer, Wait::dont_block);
  return received ? std::string(received->bytes) : received.error().what;
}

// The shell, at a number of ten or above.
UniqueFd shell_image() {
  UniqueFd any(::open("/bin/sh", O_RDONLY | O_CLOEXEC));
  return UniqueFd(::fcntl(any.get(), F_DUPFD_CLOEXEC, 10));
}

TEST(SpawnImage, GivesOneDescriptorAndNoEnvironment) {
  UniqueFd shell = shell_image();
  ASSERT_TRUE(shell);
  ::setenv("ASR_CANARY", "leaked", 1);
  EXPECT_EQ(said_by(shell.get(), "printf '%s.' \"$ASR_CANARY\" >&3"), ".");
  EXPECT_EQ(said_by(shell.get(), "readlink /proc/self/fd/0 >&3"), "/dev/null\n");
}

// Three is where the socket goes; the program must be found all the same.
TEST(SpawnImage, AnyDescriptorMayHoldTheProgram) {
  UniqueFd shell = shell_image();
  UniqueFd kept(::fcntl(3, F_DUPFD_CLOEXEC, 10));  // Whatever this process has there.
  ScopeExit restore([&] {
    kept ? static_cast<void>(::dup3(kept.get(), 3, O_CLOEXEC)) : static_cast<void>(::close(3));
  });
  ASSERT_EQ(::dup3(shell.get(), 3, O_CLOEXEC), 3);
  EXPECT_EQ(said_by(3, "printf hello >&3"), "hello");
}

TEST(SpawnImage, GivesSeveralInOrderWhateverTheirNumbers) {
  UniqueFd shell = shell_image();
  auto pair = seqpacket_pair();
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  // The second may well be number 3 or 4 itself.
  std::array<int, 2> inherit{null.get(), pair->second.get()};
  const char* argv[] = {"sh", "-c", "printf x >&3; printf hello >&4", nullptr};
  auto spawned = spawn_image(shell.get(), argv, inherit);
  ASSERT_TRUE(spawned);
  ASSERT_EQ(::waitpid(spawned->pid, nullptr, 0), spawned->pid);
  std::vector<char> buffer(kMaxPacket);
  auto received = receive_packet(pair->first.get(), buffer, Wait::dont_block);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, "hello");
}

TEST(SpawnImage, WhatIsNoProgramIsAnError) {
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto pair = seqpacket_pair();
  const char* argv[] = {"nothing", nullptr};
  std::array<int, 1> inherit{pair->second.get()};
  EXPECT_FALSE(spawn_image(null.get(), argv, inherit));
}

}  // namespace
}  // namespace asr
