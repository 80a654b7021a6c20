#include "guest/outbox.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/seqpacket.hpp"
#include "wire/guest_messages.hpp"

namespace asr {
namespace {

class Outboxes : public testing::Test {
 protected:
  // The id of the next message, 0 if there is none.
  std::uint32_t hear() {
    auto received = receive_packet(sockets_.first.get(), buffer_, Wait::dont_block);
    auto frame = received && received->kind == Received::Kind::packet ? parse_frame(received->bytes)
                                                                      : std::nullopt;
    return frame ? frame->id : 0;
  }
  void fill() {
    while (outbox_.empty()) ASSERT_TRUE(outbox_.send(++last_, wire::Done{}));
  }

  SocketPair sockets_ = *seqpacket_pair();
  Outbox outbox_{sockets_.second.get()};
  std::uint32_t last_ = 0;
  std::vector<char> buffer_ = std::vector<char>(kMaxPacket);
};

TEST_F(Outboxes, SendsAtOnceWhileThereIsRoom) {
  EXPECT_TRUE(outbox_.send(1, wire::Done{}));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_EQ(hear(), 1U);
}

TEST_F(Outboxes, NeverWaitsAndLosesNothing) {
  fill();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(outbox_.send(++last_, wire::Done{}));
  EXPECT_TRUE(outbox_.flush());
  EXPECT_FALSE(outbox_.empty());
  std::uint32_t expected = 0;
  while (expected < last_) {
    std::uint32_t id = hear();
    if (id == 0) {
      ASSERT_FALSE(outbox_.empty());
      ASSERT_TRUE(outbox_.flush());
      continue;
    }
    ASSERT_EQ(id, ++expected);
  }
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(Outboxes, HoldsDescriptorsUntilTheyAreSent) {
  fill();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  UniqueFd reader(ends[0]);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[1]);
  ASSERT_TRUE(outbox_.send(++last_, wire::Opened{}, std::move(fds)));
  char byte = 0;
  EXPECT_LT(::read(reader.get(), &byte, 1), 0) << "the writing end must be open";
  while (hear() != 0) {
  }
  ASSERT_TRUE(outbox_.flush());
  while (hear() != 0) {
  }
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "received and dropped: nobody has it";
}

TEST_F(Outboxes, NoticesThatNobodyIsThere) {
  fill();
  sockets_.first.reset();
  EXPECT_FALSE(outbox_.flush());
}

TEST_F(Outboxes, WhatIsTooLongIsAnErrorAtOnce) {
  wire::Failure failure;
  failure.what.assign(kMaxPacket, 'x');
  EXPECT_FALSE(outbox_.send(1, failure));
  EXPECT_TRUE(outbox_.empty());
}

}  // namespace
}  // namespace asr
