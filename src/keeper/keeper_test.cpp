#include "keeper/keeper.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/id.hpp"
#include "os/file.hpp"
#include "os/seqpacket.hpp"
#include "wire/keeper_messages.hpp"
#include "wire/send.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// A keeper on a thread, and a daemon's end of the conversation.
class Keepers : public testing::Test {
 protected:
  Keepers() : path_(fs::temp_directory_path() / ("asr-keeper-" + random_name(10))) {
    fs::create_directory(path_);
    dir_ = open_dir(AT_FDCWD, path_.native()).value();
  }
  ~Keepers() override {
    if (daemon_) (void)send_message(daemon_.get(), 0, wire::Quit{});
    if (thread_.joinable()) thread_.join();
    fs::remove_all(path_);
  }

  void start(std::chrono::milliseconds empty_for = 50ms) {
    UniqueFd lock(::open((path_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    auto listener = listen_seqpacket(dir_.get(), "keeper");
    ASSERT_TRUE(listener) << listener.error().what;
    thread_ =
        std::thread([empty_for, socket = *std::move(listener), held = std::move(lock)]() mutable {
          Keeper keeper(std::move(socket), std::move(held));
          EXPECT_EQ(keeper.serve(empty_for), 0);
        });
    connect();
  }
  void connect() {
    auto socket = connect_seqpacket(dir_.get(), "keeper");
    ASSERT_TRUE(socket) << socket.error().what;
    daemon_ = *std::move(socket);
  }

  template <class Message>
  void say(const Message& message, std::vector<int> fds = {}) {
    ASSERT_TRUE(send_message(daemon_.get(), 7, message, fds));
  }
  Received hear() {
    auto received = receive_packet(daemon_.get(), buffer_);
    EXPECT_TRUE(received) << received.error().what;
    return received ? *std::move(received) : Received{};
  }
  template <class Message>
  std::optional<Message> hear_one() {
    Received received = hear();
    auto frame = parse_frame(received.bytes);
    return frame && frame->id == 7 ? decode<Message>(*frame) : std::nullopt;
  }

  void keep(const std::string& name, const std::string& blob, std::vector<int> fds = {}) {
    wire::Keep message;
    message.name = name;
    message.blob = blob;
    say(message, fds);
    EXPECT_TRUE(hear_one<wire::Stored>());
  }

  struct Held {
    std::map<std::string, std::string> blobs;
    std::map<std::string, std::vector<UniqueFd>> fds;
    std::uint32_t epoch = 0;
    UniqueFd lock;
  };
  Held take_all(std::chrono::milliseconds patience = 10s, std::uint32_t least = 0) {
    wire::TakeAll take;
    take.patience = patience;
    take.least_epoch = least;
    say(take);
    Held held;
    for (;;) {
      Received received = hear();
      auto frame = parse_frame(received.bytes);
      if (!frame) return held;
      if (auto kept = decode<wire::Kept>(*frame)) {
        held.blobs[kept->name] = kept->blob;
        held.fds[kept->name] = std::move(received.fds);
        continue;
      }
      auto taken = decode<wire::Taken>(*frame);
      EXPECT_TRUE(taken);
      if (taken) held.epoch = taken->epoch;
      if (received.fds.size() == 1) held.lock = std::move(received.fds[0]);
      return held;
    }
  }

  fs::path path_;
  UniqueFd dir_;
  UniqueFd daemon_;
  std::thread thread_;
  std::vector<char> buffer_ = std::vector<char>(kMaxPacket);
};

TEST_F(Keepers, AFreshOneHoldsNothingButTheLock) {
  start();
  Held held = take_all();
  EXPECT_TRUE(held.blobs.empty());
  EXPECT_EQ(held.epoch, 1U);
  struct stat given {};
  struct stat file {};
  ASSERT_EQ(::fstat(held.lock.get(), &given), 0);
  ASSERT_EQ(::stat((path_ / "lock").c_str(), &file), 0);
  EXPECT_EQ(given.st_ino, file.st_ino);
}

TEST_F(Keepers, TheNextDaemonGetsEverything) {
  start(10s);
  take_all();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  keep("a", "first", {reader.get(), writer.get()});
  keep("b", std::string(100'000, 'x'));
  writer.reset();
  reader.reset();
  connect();  // The last one goes as this one comes.
  Held held = take_all();
  EXPECT_EQ(held.epoch, 2U);
  EXPECT_EQ(held.blobs["a"], "first");
  EXPECT_EQ(held.blobs["b"].size(), 100'000U);
  ASSERT_EQ(held.fds["a"].size(), 2U);
  EXPECT_TRUE(held.fds["b"].empty());
  ASSERT_EQ(::write(held.fds["a"][1].get(), "hi", 2), 2);
  char text[2];
  ASSERT_EQ(::read(held.fds["a"][0].get(), text, 2), 2);
  EXPECT_EQ(std::string(text, 2), "hi");
}

TEST_F(Keepers, KeepingAgainReplacesAndClosesWhatWasThere) {
  start();
  take_all();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  keep("a", "1", {writer.get()});
  writer.reset();
  keep("a", "2");
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "a copy of the pipe's end is still open";
  EXPECT_EQ(take_all().blobs["a"], "2");
}

TEST_F(Keepers, ForgettingTakesWhatIsBelow) {
  start();
  take_all();
  for (const char* name : {"a", "a/1", "a/2", "ab", "b", "b/1"}) keep(name, "");
  wire::Forget forget;
  forget.name = "a";
  say(forget);
  forget.name = "b/1";
  say(forget);
  forget.name = "nothing";
  say(forget);
  Held held = take_all();
  EXPECT_EQ(held.blobs.size(), 2U);
  EXPECT_TRUE(held.blobs.contains("ab") && held.blobs.contains("b"));
}

TEST_F(Keepers, EndsWhenItHoldsNothingAndNobodyComes) {
  start(100ms);
  take_all();
  daemon_.reset();
  auto begin = std::chrono::steady_clock::now();
  thread_.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST_F(Keepers, EndsWhenTheDaemonStaysAwayForTooLong) {
  start(10s);
  take_all(200ms);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  keep("a", "", {ends[1]});
  ::close(ends[1]);
  daemon_.reset();
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
  thread_.join();
}

TEST_F(Keepers, WaitsForTheDaemonWhileThereIsOne) {
  start(10ms);
  take_all(10ms);
  std::this_thread::sleep_for(200ms);
  keep("a", "still here");
  EXPECT_EQ(take_all().blobs["a"], "still here");
}

TEST_F(Keepers, AYoungerOneGoesOnCounting) {
  start();
  EXPECT_EQ(take_all(10s, 41).epoch, 41U);
  EXPECT_EQ(take_all(10s, 0).epoch, 42U);
}

TEST_F(Keepers, NonsenseCostsTheConnectionAndNothingElse) {
  start(10s);
  take_all();
  keep("a", "stays");
  ASSERT_TRUE(send_packet(daemon_.get(), "nonsense"));
  EXPECT_EQ(hear().kind, Received::Kind::closed);
  connect();
  EXPECT_EQ(take_all().blobs["a"], "stays");
  // A frame of another kind is refused, and the conversation goes on.
  say(wire::Stored{});
  EXPECT_TRUE(hear_one<wire::NotStored>());
}

}  // namespace
}  // namespace asr
