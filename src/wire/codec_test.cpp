#include "wire/codec.hpp"

#include <gtest/gtest.h>

#include "wire/guest_messages.hpp"
#include "wire/zygote_messages.hpp"

namespace asr {
namespace {

wire::Start example() {
  wire::Start start;
  start.argv = {"/bin/echo", "a b", ""};
  start.env = {"X=1"};
  start.cwd = "/workspace";
  start.user = "user";
  start.wall_time = std::chrono::milliseconds(1500);
  return start;
}

TEST(Wire, AMessageComesBackAsItWasSent) {
  std::string packet = encode(7, example());
  auto frame = parse_frame(packet);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->id, 7U);
  auto start = decode<wire::Start>(*frame);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->argv, example().argv);
  EXPECT_EQ(start->wall_time.count(), 1500);
}

TEST(Wire, EveryTruncationIsRefused) {
  std::string packet = encode(7, example());
  for (std::size_t size = 0; size < packet.size(); ++size) {
    auto frame = parse_frame(std::string_view(packet).substr(0, size));
    if (frame) EXPECT_FALSE(decode<wire::Start>(*frame)) << size;
  }
}

TEST(Wire, BytesLeftOverAreRefused) {
  std::string packet = encode(7, example()) + "x";
  EXPECT_FALSE(decode<wire::Start>(*parse_frame(packet)));
}

TEST(Wire, AnotherTypeOrVersionIsRefused) {
  std::string packet = encode(7, wire::Ping{});
  EXPECT_FALSE(decode<wire::Start>(*parse_frame(packet)));
  packet[0] = 9;
  EXPECT_FALSE(parse_frame(packet));
}

// A length that promises more than the packet holds must be found before memory is set aside for
// it.
TEST(Wire, HugeCountsCostNothing) {
  Writer writer;
  writer(FrameHeader{kWireVersion, static_cast<std::uint16_t>(wire::GuestType::page), 1});
  writer(std::uint32_t{0xffffffff});
  std::string packet = writer.take();
  EXPECT_FALSE(decode<wire::Page>(*parse_frame(packet)));
}

}  // namespace
}  // namespace asr
