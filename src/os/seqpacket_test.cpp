#include "os/seqpacket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>

namespace asr {
namespace {

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

bool same_file(int a, int b) {
  struct stat left {};
  struct stat right {};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_ino == right.st_ino &&
         left.st_dev == right.st_dev;
}

// What our own send_packet() refuses to send.
void send_raw(int socket, const std::string& bytes, const std::vector<int>& fds) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ASSERT_EQ(::sendmsg(socket, &message, 0), static_cast<ssize_t>(bytes.size()));
}

class Seqpacket : public testing::Test {
 protected:
  Seqpacket() : pair_(*seqpacket_pair()), buffer_(kMaxPacket) {}
  Result<Received> receive(Wait wait = Wait::dont_block) {
    return receive_packet(pair_.second.get(), buffer_, wait);
  }
  SocketPair pair_;
  std::vector<char> buffer_;
};

TEST_F(Seqpacket, MessagesKeepTheirBordersAndDescriptors) {
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  UniqueFd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  std::array<int, 2> both{null.get(), zero.get()};
  ASSERT_TRUE(send_packet(pair_.first.get(), "one", both));
  ASSERT_TRUE(send_packet(pair_.first.get(), "two"));
  auto one = receive();
  ASSERT_TRUE(one);
  EXPECT_EQ(one->bytes, "one");
  ASSERT_EQ(one->fds.size(), 2U);
  EXPECT_TRUE(same_file(one->fds[0].get(), null.get()));
  EXPECT_TRUE(same_file(one->fds[1].get(), zero.get()));
  EXPECT_EQ(::fcntl(one->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  auto two = receive();
  EXPECT_EQ(two->bytes, "two");
  EXPECT_TRUE(two->fds.empty());
}

TEST_F(Seqpacket, TheLargestMessageFits) {
  ASSERT_TRUE(send_packet(pair_.first.get(), std::string(kMaxPacket, 'x')));
  EXPECT_EQ(receive()->bytes.size(), kMaxPacket);
  EXPECT_EQ(send_packet(pair_.first.get(), std::string(kMaxPacket + 1, 'x')).error().code,
            Errc::invalid);
  std::vector<int> many(kMaxPacketFds + 1, 0);
  EXPECT_EQ(send_packet(pair_.first.get(), "x", many).error().code, Errc::invalid);
}

TEST_F(Seqpacket, NothingAndTheEndAreToldApart) {
  EXPECT_EQ(receive()->kind, Received::Kind::nothing);
  pair_.first.reset();
  EXPECT_EQ(receive()->kind, Received::Kind::closed);
}

TEST_F(Seqpacket, AClosedPeerIsAnErrorNotASignal) {
  pair_.second.reset();
  EXPECT_FALSE(send_packet(pair_.first.get(), "x"));
}

// The peer left with a message of ours unread: Linux says so by ECONNRESET.
TEST_F(Seqpacket, APeerThatLeftWithoutReadingIsGone) {
  ASSERT_TRUE(send_packet(pair_.second.get(), "unread"));
  pair_.first.reset();
  EXPECT_EQ(receive()->kind, Received::Kind::closed);
}

TEST_F(Seqpacket, AFullSocketSaysSo) {
  Result<void> sent;
  for (int i = 0; i < 1000 && sent; ++i)
    sent = send_packet(pair_.first.get(), std::string(64 * 1024, 'x'), {}, Wait::dont_block);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Errc::exhausted);
}

TEST_F(Seqpacket, WhatDoesNotFitIsRefusedWithAllItBrought) {
  auto before = open_descriptors();
  send_raw(pair_.first.get(), std::string(kMaxPacket + 1, 'x'), {0, 1, 2});
  EXPECT_EQ(receive().error().code, Errc::internal);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Seqpacket, TooManyDescriptorsAreRefusedAndClosed) {
  auto before = open_descriptors();
  send_raw(pair_.first.get(), "x", std::vector<int>(kMaxPacketFds + 1, 0));
  EXPECT_EQ(receive().error().code, Errc::internal);
  send_raw(pair_.first.get(), "x", std::vector<int>(200, 0));
  EXPECT_EQ(receive().error().code, Errc::internal);
  EXPECT_EQ(open_descriptors(), before);
}

// Our side never sends one, so a message without a byte is the peer saying nothing sensible.
TEST_F(Seqpacket, AnEmptyMessageEndsTheTalkAndLeaksNothing) {
  auto before = open_descriptors();
  send_raw(pair_.first.get(), "", {0, 1});
  EXPECT_EQ(receive()->kind, Received::Kind::closed);
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace asr
