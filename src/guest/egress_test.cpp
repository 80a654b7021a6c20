#include "guest/egress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

namespace asr {
namespace {

using namespace std::chrono_literals;

class Doors : public testing::Test {
 protected:
  void SetUp() override {
    // Any port that is free: tests run beside each other.
    for (std::uint16_t port = 30000; port < 60000; port = static_cast<std::uint16_t>(port + 37))
      if (auto door = Egress::listen(port)) {
        door_ = *std::move(door);
        port_ = port;
        return;
      }
    FAIL() << "no port is free";
  }

  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    return socket;
  }

  Egress door_;
  std::uint16_t port_ = 0;
};

TEST_F(Doors, LetOutNoMoreThanAskedFor) {
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(connect());
  EXPECT_EQ(door_.waits_on(Egress::Clock::now()), -1);
  EXPECT_TRUE(door_.accept().empty());
  door_.accept_more(3);
  EXPECT_GE(door_.waits_on(Egress::Clock::now()), 0);
  EXPECT_EQ(door_.accept().size(), 3U);
  EXPECT_EQ(door_.waits_on(Egress::Clock::now()), -1);
  door_.accept_more(100);
  EXPECT_EQ(door_.accept().size(), 7U);
  door_.reset();
  EXPECT_EQ(door_.waits_on(Egress::Clock::now()), -1);
}

TEST_F(Doors, TakeARestAfterABurst) {
  door_.accept_more(1000);
  std::vector<UniqueFd> clients;
  std::size_t out = 0;
  for (int i = 0; i < 100; ++i) clients.push_back(connect());
  for (auto& connection : door_.accept()) out += connection ? 1 : 0;
  EXPECT_EQ(out, 64U);
  EXPECT_GT(door_.sleep(), 0ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_GE(door_.waits_on(Egress::Clock::now()), 0);
  EXPECT_LT(door_.sleep(), 0ms);
  EXPECT_GT(door_.accept().size(), 0U);
}

TEST_F(Doors, ArePlacesForOne) { EXPECT_FALSE(Egress::listen(port_)); }

TEST(Door, WithoutAPortIsClosed) {
  Egress none;
  none.accept_more(10);
  EXPECT_EQ(none.waits_on(Egress::Clock::now()), -1);
  EXPECT_LT(none.sleep(), 0ms);
}

}  // namespace
}  // namespace asr
