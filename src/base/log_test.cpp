#include "base/log.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

constexpr std::int64_t kTime = 1'700'000'000'123;

TEST(Log, JsonIsOneLineWhateverIsInIt) {
  std::string line = format_line(LogFormat::json, LogLevel::info, kTime, "created \"x\"",
                                 {{"path", "a\nb\x1b[31m\\"}, {"name", "\xff"}});
  EXPECT_EQ(line, R"({"time":"2023-11-14T22:13:20.123Z","level":"info","message":"created \"x\"",)"
                  R"("path":"a\u000ab\u001b[31m\\","name":"\u00ff"})");
}

TEST(Log, TextQuotesWhatHasBlanks) {
  EXPECT_EQ(format_line(LogFormat::text, LogLevel::warning, kTime, "slow",
                        {{"a", "1"}, {"b", "x y"}, {"c", ""}}),
            "2023-11-14T22:13:20.123Z warning slow a=1 b=\"x y\" c=\"\"");
}

TEST(Log, LongValuesAreCut) {
  std::string line =
      format_line(LogFormat::text, LogLevel::info, kTime, "m", {{"a", std::string(1 << 20, 'x')}});
  EXPECT_LT(line.size(), 3000U);
}

TEST(Log, LevelsHaveNames) {
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  EXPECT_FALSE(parse_log_level("loud"));
}

}  // namespace
}  // namespace asr
