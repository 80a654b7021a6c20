#include "session/output_log.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using Stream = OutputChunk::Stream;

std::string joined(const std::vector<OutputLog::Piece>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece.data;
  return text;
}

TEST(OutputLog, KeepsOrderStreamsAndPlaces) {
  OutputLog log(1000);
  log.append(Stream::out, "one ");
  log.append(Stream::err, "two ");
  log.append(Stream::out, "three");
  EXPECT_EQ(log.end(), 13U);
  EXPECT_EQ(joined(log.read(0, 1000)), "one two three");
  EXPECT_EQ(joined(log.read(6, 1000)), "o three");
  EXPECT_EQ(joined(log.read(6, 3)), "o t");
  EXPECT_EQ(log.read(6, 3)[0].offset, 6U);
  EXPECT_EQ(log.read(6, 3)[0].stream, Stream::err);
  EXPECT_TRUE(log.read(13, 10).empty());
  EXPECT_TRUE(log.read(99, 10).empty());
  EXPECT_EQ(log.text_of(Stream::out), "one three");
  EXPECT_EQ(log.text_of(Stream::err), "two ");
}

TEST(OutputLog, ForgetsTheOldestAndSaysSo) {
  OutputLog log(10);
  log.append(Stream::out, "0123456789");
  log.append(Stream::err, "abc");
  EXPECT_EQ(log.begin(), 3U);
  EXPECT_EQ(joined(log.read(0, 100)), "3456789abc");
  EXPECT_EQ(log.read(0, 100)[0].offset, 3U);
  log.append(Stream::out, std::string(25, 'x'));
  EXPECT_EQ(log.kept(), 10U);
  EXPECT_EQ(log.begin(), 28U);
  EXPECT_EQ(joined(log.read(0, 100)), std::string(10, 'x'));
}

TEST(OutputLog, ReadingInStepsGivesEveryByteOnce) {
  OutputLog log(1 << 20);
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    std::string part = std::to_string(i) + ",";
    all += part;
    log.append(i % 3 == 0 ? Stream::err : Stream::out, part);
  }
  std::string seen;
  std::uint64_t at = 0;
  for (;;) {
    auto pieces = log.read(at, 777);
    if (pieces.empty()) break;
    EXPECT_EQ(pieces[0].offset, at);
    seen += joined(pieces);
    at = pieces.back().offset + pieces.back().data.size();
  }
  EXPECT_EQ(seen, all);
}

}  // namespace
}  // namespace asr
