#include <gtest/gtest.h>

#include <random>
#include <set>

#include "wire/message_lists.hpp"

namespace asr {
namespace {

// Walks fields() like the codec and puts something into each.
class Filler {
 public:
  explicit Filler(unsigned seed) : random_(seed) {}

  template <class T>
  void operator()(T& value) {
    put(value);
  }

 private:
  template <class T>
    requires std::integral<T> || std::is_enum_v<T>
  void put(T& value) {
    value = static_cast<T>(random_());
  }
  void put(bool& value) { value = random_() % 2 == 0; }
  template <class Rep, class Period>
  void put(std::chrono::duration<Rep, Period>& value) {
    value = std::chrono::duration<Rep, Period>(static_cast<std::int64_t>(random_()));
  }
  void put(std::string& value) {
    value.resize(random_() % 20);
    for (char& c : value) c = static_cast<char>(random_());
  }
  template <class T>
  void put(std::vector<T>& values) {
    values.resize(random_() % 4);
    for (T& value : values) put(value);
  }
  template <class T>
    requires requires(T& t, Filler& f) { t.fields(f); }
  void put(T& value) {
    value.fields(*this);
  }

  std::mt19937_64 random_;
};

template <class Message>
void check_message(unsigned seed) {
  Message message;
  Filler filler(seed);
  filler(message);
  std::string packet = encode(seed, message);
  auto frame = parse_frame(packet);
  ASSERT_TRUE(frame);
  auto read = decode<Message>(*frame);
  ASSERT_TRUE(read) << "type " << frame->type;
  EXPECT_EQ(encode(seed, *read), packet) << "type " << frame->type;

  for (std::size_t size = 8; size < packet.size(); ++size)
    EXPECT_FALSE(decode<Message>(*parse_frame(packet.substr(0, size))))
        << "type " << frame->type << " cut at " << size;
  std::string longer = packet + '\0';
  EXPECT_FALSE(decode<Message>(*parse_frame(longer))) << "type " << frame->type;
}

template <class Messages>
void check_all() {
  for (unsigned seed = 0; seed < 50; ++seed)
    wire::for_each_message<Messages>([&](auto message) { check_message<decltype(message)>(seed); });
}

TEST(Messages, OfAGuestComeBackWholeOrNotAtAll) { check_all<wire::GuestMessages>(); }
TEST(Messages, OfAZygoteComeBackWholeOrNotAtAll) { check_all<wire::ZygoteMessages>(); }
TEST(Messages, OfAKeeperComeBackWholeOrNotAtAll) { check_all<wire::KeeperMessages>(); }

TEST(Messages, NoTwoHaveTheSameNumber) {
  std::set<int> types;
  std::size_t count = 0;
  auto note = [&](auto message) {
    types.insert(static_cast<int>(decltype(message)::kType));
    ++count;
  };
  wire::for_each_message<wire::GuestMessages>(note);
  wire::for_each_message<wire::ZygoteMessages>(note);
  wire::for_each_message<wire::KeeperMessages>(note);
  EXPECT_EQ(types.size(), count);
}

// A byte that is neither 0 nor 1 in a bool is undefined behaviour once it is looked at.
TEST(Messages, ABoolIsZeroOrOne) {
  std::string packet = encode(1, wire::Configured{});
  packet[8] = 2;
  EXPECT_FALSE(decode<wire::Configured>(*parse_frame(packet)));
}

}  // namespace
}  // namespace asr
