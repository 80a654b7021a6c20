#include "store/event_records.hpp"

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class Events : public test::RecordTest {
 protected:
  EventRecord add(const std::string& owner, const std::string& session) {
    EventRecord r{0, 77, "session.created", session, owner, "{}"};
    r.id = must(append_event(*db_, r));
    return r;
  }
};

TEST_F(Events, AreGivenInOrderFromAnyPoint) {
  std::vector<EventRecord> all;
  for (int i = 0; i < 5; ++i) all.push_back(add("alice", "s1"));
  EXPECT_EQ(must(list_events(*db_, {})), all);
  EXPECT_EQ(must(list_events(*db_, {.after = all[2].id})), (std::vector{all[3], all[4]}));
  EXPECT_EQ(must(list_events(*db_, {.after = all[0].id, .limit = 1})), (std::vector{all[1]}));
  EXPECT_TRUE(must(list_events(*db_, {.after = all[4].id})).empty());
  EXPECT_EQ(list_events(*db_, {.limit = 1001}).error().code, Errc::invalid);
}

TEST_F(Events, OwnersAndSessionsAreToldApart) {
  EventRecord a1 = add("alice", "s1");
  EventRecord b2 = add("bob", "s2");
  EventRecord a3 = add("alice", "s3");
  EXPECT_EQ(must(list_events(*db_, {.owner = "alice"})), (std::vector{a1, a3}));
  EXPECT_EQ(must(list_events(*db_, {.session = "s2"})), (std::vector{b2}));
  EXPECT_EQ(must(list_events(*db_, {.owner = "alice", .session = "s3"})), (std::vector{a3}));
  EXPECT_TRUE(must(list_events(*db_, {.owner = "alice", .session = "s2"})).empty());
  for (const char* hostile : test::kHostile)
    EXPECT_TRUE(must(list_events(*db_, {.owner = hostile})).empty());
}

TEST_F(Events, IdsAreNeverGivenTwice) {
  EXPECT_EQ(must(newest_event_id(*db_)), 0);
  EXPECT_EQ(must(oldest_event_id(*db_)), 0);
  for (int i = 0; i < 5; ++i) add("alice", "s1");
  EXPECT_EQ(must(trim_events(*db_, 2)), 3);
  EXPECT_EQ(must(oldest_event_id(*db_)), 4);
  EXPECT_EQ(must(newest_event_id(*db_)), 5);
  EXPECT_EQ(must(trim_events(*db_, 2)), 0);
  EXPECT_EQ(must(trim_events(*db_, 0)), 1);
  EXPECT_EQ(must(newest_event_id(*db_)), 5);
  EXPECT_EQ(must(oldest_event_id(*db_)), 5);
  EXPECT_EQ(add("alice", "s1").id, 6);
}

}  // namespace
}  // namespace asr
