#include "engine/channel.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <filesystem>
#include <thread>

#include "base/scope_exit.hpp"
#include "wire/guest_messages.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// A channel whose other end is the test's own, to be as hostile as it likes.
asio::awaitable<void> ask(Channel::Box* from, Channel::Clock::time_point deadline,
                          Result<Letter>* to) {
  *to = co_await from->next(deadline);
}

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    auto pair = seqpacket_pair();
    peer_ = std::move(pair->second);
    channel_ = std::make_shared<Channel>(asio::make_strand(context_), std::move(pair->first));
  }
  ~ChannelTest() override {
    channel_->close();
    run(10ms);
  }

  void open() {
    channel_->open([this](const Letter& letter) { unasked_.push_back(letter.id); },
                   [this] { ++closed_; });
  }
  void run(std::chrono::milliseconds time) {
    context_.restart();
    context_.run_for(time);
  }
  Result<void> say(std::uint32_t id, std::span<const int> fds = {}) {
    return send_message(peer_.get(), id, wire::Started{}, fds, Wait::dont_block);
  }
  // What next() gives, when it gives something within a second.
  Result<Letter> next(Channel::Box& box, std::chrono::milliseconds within) {
    Result<Letter> result = fail(Errc::internal, "next() did not return");
    asio::co_spawn(channel_->executor(), ask(&box, Channel::Clock::now() + within, &result),
                   asio::detached);
    run(1000ms);
    return result;
  }

  asio::io_context context_{1};
  UniqueFd peer_;
  std::shared_ptr<Channel> channel_;
  std::vector<std::uint32_t> unasked_;
  int closed_ = 0;
};

TEST_F(ChannelTest, AnswersReachTheirBoxesInOrder) {
  open();
  auto one = channel_->box();
  auto two = channel_->box();
  EXPECT_NE(one->id(), two->id());
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::array<int, 1> fds{null.get()};
  ASSERT_TRUE(say(two->id()));
  ASSERT_TRUE(say(one->id(), fds));
  ASSERT_TRUE(send_message(peer_.get(), one->id(), wire::Done{}));
  auto first = next(*one, 500ms);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->as<wire::Started>());
  EXPECT_FALSE(first->as<wire::Done>());
  EXPECT_EQ(first->fds.size(), 1U);
  EXPECT_TRUE(next(*one, 500ms)->as<wire::Done>());
  EXPECT_TRUE(next(*two, 500ms));
  EXPECT_EQ(next(*two, 20ms).error().code, Errc::timeout);
}

TEST_F(ChannelTest, ABoxThatWasGivenUpSaysSoOnceItIsEmpty) {
  open();
  auto box = channel_->box_for(1234);
  EXPECT_EQ(box->id(), 1234U);
  ASSERT_TRUE(say(1234));
  run(20ms);
  box->give_up();
  EXPECT_TRUE(next(*box, 500ms));
  EXPECT_EQ(next(*box, 500ms).error().code, Errc::not_found);
}

TEST_F(ChannelTest, AClosedPeerEndsEveryWait) {
  open();
  auto box = channel_->box();
  ASSERT_TRUE(say(box->id()));
  peer_.reset();
  EXPECT_TRUE(next(*box, 500ms)) << "what it said before it left still counts";
  EXPECT_EQ(next(*box, 500ms).error().code, Errc::gone);
  EXPECT_EQ(channel_->send(1, wire::Ping{}).error().code, Errc::gone);
  EXPECT_EQ(closed_, 1);
}

TEST_F(ChannelTest, NonsenseEndsTheChannel) {
  for (const std::string& packet : {std::string("x"), std::string("garbage that is long enough"),
                                    std::string(7, '\0'), std::string(kMaxPacket, '\xff'),
                                    std::string(8, '\0'), std::string("\x02\0\x03\0\0\0\0\0", 8)}) {
    auto pair = seqpacket_pair();
    auto channel = std::make_shared<Channel>(asio::make_strand(context_), std::move(pair->first));
    int closed = 0;
    channel->open([](const Letter&) {}, [&] { ++closed; });
    ASSERT_TRUE(send_packet(pair->second.get(), packet));
    run(50ms);
    EXPECT_EQ(closed, 1) << packet.size();
    EXPECT_FALSE(channel->is_open());
  }
}

TEST_F(ChannelTest, LettersNobodyAskedForCostNothing) {
  open();
  auto before = open_descriptors();
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<int> fds(kMaxPacketFds, null.get());
  for (std::uint32_t id : {0U, 1U, 77U, 0xffffffffU}) ASSERT_TRUE(say(id, fds));
  run(50ms);
  EXPECT_EQ(unasked_, (std::vector<std::uint32_t>{0, 1, 77, 0xffffffffU}));
  EXPECT_TRUE(channel_->is_open());
  EXPECT_EQ(open_descriptors(), before + 1);
}

TEST_F(ChannelTest, AnswersToAClosedBoxAreUnasked) {
  open();
  auto box = channel_->box();
  std::uint32_t id = box->id();
  box.reset();
  ASSERT_TRUE(say(id));
  run(50ms);
  EXPECT_EQ(unasked_, std::vector<std::uint32_t>{id});
  EXPECT_NE(channel_->box()->id(), id) << "a late answer must not reach another request";
}

TEST_F(ChannelTest, ClosingFromALetterIsSafe) {
  channel_->open([this](const Letter&) { channel_->close(); }, [this] { ++closed_; });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(say(5));
  run(50ms);
  EXPECT_EQ(closed_, 1);
}

TEST_F(ChannelTest, ClosingDropsDescriptorsNobodyTook) {
  open();
  auto before = open_descriptors();
  auto box = channel_->box();
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<int> fds(kMaxPacketFds, null.get());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(say(box->id(), fds));
  run(50ms);
  box.reset();
  EXPECT_EQ(open_descriptors(), before + 1);
}

// ---- floods
// --------------------------------------------------------------------------------------

// Sends as fast as it can until told to stop or the channel is closed. Counts what was taken.
class Flood {
 public:
  Flood(int socket, std::string packet, std::vector<int> fds, std::size_t most)
      : thread_([this, socket, packet = std::move(packet), fds = std::move(fds), most] {
          while (!stop_ && sent_ < most) {
            auto sent = send_packet(socket, packet, fds, Wait::dont_block);
            if (sent)
              ++sent_;
            else if (sent.error().code != Errc::exhausted)
              return;
          }
        }) {}
  ~Flood() { end(); }
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::size_t sent() const { return sent_; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> sent_ = 0;
  std::thread thread_;
};

std::string large_packet(std::uint32_t id) {
  wire::Failure failure;
  failure.what = std::string(100 * 1024, 'x');
  return encode(id, failure);
}

TEST_F(ChannelTest, AFloodOfAnswersEndsTheChannel) {
  open();
  auto box = channel_->box();
  Flood flood(peer_.get(), encode(box->id(), wire::Done{}), {}, 100'000);
  run(3000ms);
  flood.end();
  EXPECT_FALSE(channel_->is_open());
  EXPECT_EQ(closed_, 1);
}

// The number of letters says little: what they weigh is what a daemon has to carry.
TEST_F(ChannelTest, UnreadAnswersWeighAtMostAFewMegabytes) {
  open();
  auto box = channel_->box();
  Flood flood(peer_.get(), large_packet(box->id()), {}, 640);  // 64 MB
  run(3000ms);
  flood.end();
  EXPECT_FALSE(channel_->is_open());
}

// Descriptors of one sandbox must not use up the daemon's, which all of them share.
TEST_F(ChannelTest, UnreadDescriptorsAreFew) {
  open();
  auto box = channel_->box();
  auto before = open_descriptors();
  UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Flood flood(peer_.get(), encode(box->id(), wire::Opened{}),
              std::vector<int>(kMaxPacketFds, null.get()), 64);
  run(1000ms);
  flood.end();
  EXPECT_LE(open_descriptors(), before + 260);
}

// Other sandboxes share the thread: one that never stops talking must let them have it.
TEST_F(ChannelTest, APeerThatNeverStopsLeavesTimeForOthers) {
  int taken = 0;
  int taken_before_others = -1;
  auto answer = [&](const Letter&) {
    if (++taken < 100'000) EXPECT_TRUE(say(99));  // There is always one more.
  };
  ASSERT_TRUE(say(99));
  channel_->open(answer, [] {});
  asio::post(context_, [&] { taken_before_others = taken; });
  run(3000ms);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken_before_others, 1000);
}

}  // namespace
}  // namespace asr
