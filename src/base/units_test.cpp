#include "base/units.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using namespace std::chrono_literals;

TEST(Units, SizesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(*parse_bytes("512M"), 512U << 20);
  EXPECT_EQ(*parse_bytes("1.5GiB"), 3U << 29);
  EXPECT_EQ(*parse_bytes("4096"), 4096U);
  EXPECT_EQ(*parse_bytes("64KB"), 65536U);
}

TEST(Units, DurationsAreReadAsPeopleWriteThem) {
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("5"), 5s);
  EXPECT_EQ(*parse_duration("1.5m"), 90s);
  EXPECT_EQ(*parse_duration("2h"), 2h);
}

TEST(Units, NonsenseIsRefused) {
  for (const char* text : {"", "x", "-1M", "1X", "nan", "inf", "9e30", "5 M", "0x10"})
    EXPECT_FALSE(parse_bytes(text)) << text;
  for (const char* text : {"", "s", "-1s", "1d", "1e40h"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Units, PrintingPicksAReadableUnit) {
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(512U << 20), "512 MiB");
  EXPECT_EQ(format_duration(1500us), "1.5 ms");
}

}  // namespace
}  // namespace asr
