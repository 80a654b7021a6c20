#include "os/loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace asr {
namespace {

using namespace std::chrono_literals;

class Loops : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/loop-control", R_OK | W_OK) != 0) GTEST_SKIP() << "needs loop devices";
    std::string name = "/tmp/asr-loop-XXXXXX";
    image_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    ASSERT_TRUE(image_);
    ::unlink(name.c_str());
    ASSERT_EQ(::ftruncate(image_.get(), 1 << 20), 0);
  }

  UniqueFd image_;
};

TEST_F(Loops, AreFoundByTheirFileAndGoByThemselves) {
  EXPECT_FALSE(loop_of(image_.get()));
  auto device = attach_loop(image_.get());
  ASSERT_TRUE(device) << device.error().what;
  EXPECT_EQ(loop_of(image_.get()), device->number);
  ASSERT_EQ(::pwrite(device->fd.get(), "hello", 5, 4096), 5);
  ASSERT_EQ(::fsync(device->fd.get()), 0);
  char text[5];
  ASSERT_EQ(::pread(image_.get(), text, 5, 4096), 5);
  EXPECT_EQ(std::string(text, 5), "hello");
  device->fd.reset();
  for (int i = 0; i < 500 && loop_of(image_.get()); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(loop_of(image_.get()));
}

TEST_F(Loops, TwoFilesHaveTwo) {
  auto one = attach_loop(image_.get());
  ASSERT_TRUE(one);
  UniqueFd other(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!other) GTEST_SKIP() << "no O_TMPFILE in /tmp";
  ASSERT_EQ(::ftruncate(other.get(), 1 << 20), 0);
  EXPECT_FALSE(loop_of(other.get()));
  auto two = attach_loop(other.get());
  ASSERT_TRUE(two);
  EXPECT_NE(one->number, two->number);
  EXPECT_EQ(loop_of(other.get()), two->number);
}

}  // namespace
}  // namespace asr
