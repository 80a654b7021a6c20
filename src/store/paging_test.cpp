#include "store/paging.hpp"

#include "store/record_testing.hpp"

namespace asr {
namespace {

TEST(Paging, ACursorLeadsBackToItsPosition) {
  for (const Position& position :
       {Position{0, "a"}, Position{-5, "id:with:colons"}, Position{INT64_MAX, "\xff"},
        Position{INT64_MIN, std::string(200, 'x')}}) {
    auto back = from_cursor(to_cursor(position));
    ASSERT_TRUE(back) << position.id;
    EXPECT_EQ(*back, position);
  }
}

TEST(Paging, ACursorFitsIntoAUrl) {
  std::string cursor = to_cursor({1234567890123, "\xfb\xff\xfe?&=%"});
  EXPECT_EQ(cursor.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789-_"),
            std::string::npos);
}

TEST(Paging, NonsenseIsInvalid) {
  std::string good = to_cursor({123, "abc"});
  std::vector<std::string> bad{"",
                               "=",
                               "AAAA",
                               "....",
                               "MTIz",
                               "MTIzOg",
                               good + "=",
                               good + "B",
                               " " + good,
                               good + "\n",
                               "OjphYmM",
                               "bnVsbDo6",
                               "%00",
                               std::string("MTIz\0x", 6),
                               "-_-_-_-_-_-_",
                               "KzEyMzph",
                               "MDEyMzph",
                               std::string(100'000, 'A')};
  for (const char* hostile : test::kHostile) bad.emplace_back(hostile);
  // 2^63: no such time.
  bad.push_back("OTIyMzM3MjAzNjg1NDc3NTgwODph");
  for (const std::string& cursor : bad) {
    auto position = from_cursor(cursor);
    ASSERT_FALSE(position) << cursor;
    EXPECT_EQ(position.error().code, Errc::invalid);
  }
}

TEST(Paging, LimitsHaveLimits) {
  EXPECT_EQ(*checked_limit(1), 1);
  EXPECT_EQ(*checked_limit(1000), 1000);
  for (std::int64_t limit :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1001}, INT64_MAX, INT64_MIN})
    EXPECT_EQ(checked_limit(limit).error().code, Errc::invalid);
}

}  // namespace
}  // namespace asr
