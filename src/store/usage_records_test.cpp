#include "store/usage_records.hpp"

#include "store/record_testing.hpp"
#include "store/session_records.hpp"

namespace asr {
namespace {

using test::must;

class Usage : public test::RecordTest {
 protected:
  Usage() {
    SessionRecord r;
    r.labels = "{}";
    for (const char* id : {"s1", "s2"}) {
      r.id = id;
      must(insert_session(*db_, r));
    }
  }
  UsageRecord add(const std::string& session, std::int64_t at_ms) {
    UsageRecord r{session, at_ms, 2, 3, 4, 5, 6};
    must(append_usage(*db_, r));
    return r;
  }
};

TEST_F(Usage, ComesBackAsItWent) {
  UsageRecord a = add("s1", 10);
  UsageRecord b = add("s1", 20);
  UsageRecord c = add("s2", 10);
  EXPECT_EQ(must(list_usage(*db_, "s1", 0, 100)), (std::vector{a, b}));
  EXPECT_EQ(must(list_usage(*db_, "s1", 11, 100)), (std::vector{b}));
  EXPECT_EQ(must(list_usage(*db_, "s1", 0, 1)), (std::vector{a}));
  EXPECT_EQ(must(list_usage(*db_, "s2", 0, 100)), (std::vector{c}));
  EXPECT_EQ(list_usage(*db_, "s1", 0, 0).error().code, Errc::invalid);
  EXPECT_EQ(append_usage(*db_, {.session = "s3"}).error().code, Errc::conflict);
}

TEST_F(Usage, TheSecondSampleOfAMillisecondReplacesTheFirst) {
  UsageRecord r = add("s1", 10);
  r.cpu_us = 99;
  must(append_usage(*db_, r));
  EXPECT_EQ(must(list_usage(*db_, "s1", 0, 100)), (std::vector{r}));
}

TEST_F(Usage, TrimmingKeepsTheNewestOfEachSession) {
  for (int i = 0; i < 10; ++i) {
    add("s1", i);
    add("s2", i);
  }
  EXPECT_EQ(must(trim_usage(*db_, "s1", 3)), 7);
  EXPECT_EQ(must(trim_usage(*db_, "s1", 3)), 0);
  EXPECT_EQ(must(list_usage(*db_, "s1", 0, 100)).front().at_ms, 7);
  EXPECT_EQ(must(list_usage(*db_, "s2", 0, 100)).size(), 10U);
  must(remove_session(*db_, "s2"));
  EXPECT_TRUE(must(list_usage(*db_, "s2", 0, 100)).empty());
}

}  // namespace
}  // namespace asr
