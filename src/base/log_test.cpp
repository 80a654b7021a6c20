#include "base/log.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <unistd.h>

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

// Cut in the middle it would be no JSON, and a reader would lose all of it.
TEST(Log, TheLongestLineIsWhole) {
  std::string odd(5000, '\n');
  std::string line = format_line(LogFormat::json, LogLevel::info, kTime, odd,
                                 {{"a", odd}, {"b", odd}, {"why", odd}, {"c", "1"}, {"d", "2"}});
  EXPECT_LT(line.size(), static_cast<std::size_t>(PIPE_BUF));
  EXPECT_TRUE(line.ends_with("\"}")) << line.substr(line.size() - 40);
  EXPECT_NE(line.find("\"why\":\"...\""), std::string::npos);
}

TEST(Log, WaitsForNobody) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Log log(ends[1], LogFormat::text, LogLevel::info);
  for (int i = 0; i < 10'000; ++i) log.info("a line that nobody reads");
  std::string text(1 << 20, '\0');
  ssize_t size = ::read(ends[0], text.data(), text.size());
  ASSERT_GT(size, 1000);
  text.resize(static_cast<std::size_t>(size));
  EXPECT_EQ(text.find("dropped"), std::string::npos);
  EXPECT_TRUE(text.ends_with('\n')) << "no line is cut";
  log.info("and on");
  text.assign(4096, '\0');
  size = ::read(ends[0], text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  EXPECT_NE(text.find("lines of this log were dropped count="), std::string::npos) << text;
  EXPECT_NE(text.find("and on"), std::string::npos) << text;
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Log, LevelsHaveNames) {
  EXPECT_EQ(parse_log_level("warning"), LogLevel::warning);
  EXPECT_FALSE(parse_log_level("loud"));
}

}  // namespace
}  // namespace asr
