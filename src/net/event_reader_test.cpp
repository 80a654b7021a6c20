#include "net/event_reader.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace asr {
namespace {

std::vector<ServerEvent> read_in_pieces(std::string_view text, std::size_t size) {
  EventReader reader;
  std::vector<ServerEvent> events;
  auto take = [&](ServerEvent event) -> Result<void> {
    events.push_back(std::move(event));
    return {};
  };
  for (; !text.empty(); text.remove_prefix(std::min(size, text.size())))
    EXPECT_TRUE(reader.feed(text.substr(0, size), take));
  return events;
}

TEST(EventReader, FindsEventsHoweverTheyAreCut) {
  std::string_view text =
      ": a remark\n\nevent: output\nid: 7\ndata: {\"a\": 1}\n\n"
      "data: one\r\ndata:two\r\n\r\nevent: without data\n\ndata\n\nevent: cut off\ndata: x\n";
  for (std::size_t size : {1U, 2U, 5U, 1000U}) {
    auto events = read_in_pieces(text, size);
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[0].type, "output");
    EXPECT_EQ(events[0].id, "7");
    EXPECT_EQ(events[0].data, "{\"a\": 1}");
    EXPECT_EQ(events[1].type, "message");
    EXPECT_EQ(events[1].data, "one\ntwo");
    EXPECT_EQ(events[2].data, "");
  }
}

TEST(EventReader, StopsAtAnError) {
  EventReader reader;
  int taken = 0;
  auto refuse = [&](const ServerEvent&) -> Result<void> {
    ++taken;
    return fail(Errc::invalid, "no");
  };
  auto fed = reader.feed("data: 1\n\ndata: 2\n\n", refuse);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().what, "no");
  EXPECT_EQ(taken, 1);
}

TEST(EventReader, RefusesAnEventWithoutEnd) {
  EventReader reader;
  auto take = [](const ServerEvent&) -> Result<void> { return {}; };
  std::string piece(1 << 20, 'x');
  Result<void> fed = reader.feed("data: ", take);
  for (int i = 0; i < 20 && fed; ++i) fed = reader.feed(piece, take);
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, Errc::exhausted);
}

}  // namespace
}  // namespace asr
