#include "store/session_records.hpp"

#include <algorithm>
#include <set>

#include "store/paging.hpp"
#include "store/record_testing.hpp"
#include "store/rows.hpp"
#include "store/share_records.hpp"

namespace asr {
namespace {

using test::must;

class Sessions : public test::RecordTest {
 protected:
  static SessionRecord record(std::string id) {
    SessionRecord r;
    r.id = std::move(id);
    r.owner = "alice";
    r.provider = "native";
    r.environment = "python";
    r.state = "running";
    r.spec = R"({"image":"x"})";
    r.labels = "{}";
    r.isolation = R"({"user":true})";
    r.url = "http://example.org/1";
    r.sealed = std::string("\0\x01sealed\xff", 9);
    r.sandbox = "opaque";
    r.persistent = true;
    r.created_ms = 1000;
    r.expires_ms = 2000;
    r.idle_ms = 30;
    r.active_ms = 1001;
    return r;
  }
  SessionRecord add(std::string id, std::int64_t created_ms = 1000, std::string labels = "{}") {
    SessionRecord r = record(std::move(id));
    r.created_ms = created_ms;
    r.labels = std::move(labels);
    must(insert_session(*db_, r));
    return r;
  }
  std::vector<std::string> ids(const SessionFilter& filter) {
    std::vector<std::string> found;
    for (const auto& r : must(list_sessions(*db_, filter)).sessions) found.push_back(r.id);
    return found;
  }
  // All ids, page by page; fails if a page is longer than asked for.
  std::vector<std::string> all_ids(SessionFilter filter) {
    std::vector<std::string> found;
    do {
      SessionPage page = must(list_sessions(*db_, filter));
      EXPECT_LE(page.sessions.size(), static_cast<std::size_t>(filter.limit));
      for (const auto& r : page.sessions) found.push_back(r.id);
      filter.cursor = page.cursor;
    } while (!filter.cursor.empty());
    return found;
  }
};

using Ids = std::vector<std::string>;

TEST_F(Sessions, ComeBackAsTheyWent) {
  SessionRecord r = record("s1");
  must(insert_session(*db_, r));
  EXPECT_EQ(must(find_session(*db_, "s1")), r);
  EXPECT_EQ(insert_session(*db_, r).error().code, Errc::conflict);
  EXPECT_EQ(find_session(*db_, "s2").error().code, Errc::not_found);

  r.id = "s2";
  r.ended_ms = 0;  // Not the same as not ended.
  r.end_reason = "expired";
  r.spec.clear();
  r.sealed.clear();
  r.persistent = false;
  must(insert_session(*db_, r));
  EXPECT_EQ(must(find_session(*db_, "s2")), r);
}

TEST_F(Sessions, EachUpdateChangesItsOwnFields) {
  SessionRecord r = add("s1");
  SessionRecord other = add("s2");
  must(update_session_state(*db_, "s1", "gone", "killed", 1500));
  r.state = "gone";
  r.end_reason = "killed";
  r.ended_ms = 1500;
  EXPECT_EQ(must(find_session(*db_, "s1")), r);
  must(update_session_state(*db_, "s1", "running", "", std::nullopt));
  r.state = "running";
  r.end_reason.clear();
  r.ended_ms.reset();
  must(update_session_times(*db_, "s1", 0, 5, 6));
  r.expires_ms = 0;
  r.idle_ms = 5;
  r.active_ms = 6;
  must(update_session_sandbox(*db_, "s1", "moved", "[]", "u"));
  r.sandbox = "moved";
  r.isolation = "[]";
  r.url = "u";
  must(update_session_labels(*db_, "s1", R"({"a":"b"})"));
  r.labels = R"({"a":"b"})";
  EXPECT_EQ(must(find_session(*db_, "s1")), r);
  EXPECT_EQ(must(find_session(*db_, "s2")), other);
}

TEST_F(Sessions, UpdatingWhatIsNotThereIsNotFound) {
  EXPECT_EQ(update_session_state(*db_, "x", "a", "b", 1).error().code, Errc::not_found);
  EXPECT_EQ(update_session_times(*db_, "x", 1, 2, 3).error().code, Errc::not_found);
  EXPECT_EQ(update_session_labels(*db_, "x", "{}").error().code, Errc::not_found);
  EXPECT_EQ(update_session_sandbox(*db_, "x", "", "", "").error().code, Errc::not_found);
  EXPECT_EQ(update_session_artifacts(*db_, "x", true, 0).error().code, Errc::not_found);
  EXPECT_FALSE(must(remove_session(*db_, "x")));
}

TEST_F(Sessions, ManyAreTouchedAtOnce) {
  add("s1");
  add("s2");
  std::vector<std::pair<std::string, std::int64_t>> active{{"s1", 50}, {"gone", 60}, {"s2", 70}};
  must(touch_sessions(*db_, active));
  EXPECT_EQ(must(find_session(*db_, "s1")).active_ms, 50);
  EXPECT_EQ(must(find_session(*db_, "s2")).active_ms, 70);
}

TEST_F(Sessions, TheLongEndedAreRemovedWithAllTheyHave) {
  add("s1", 1, R"({"a":"b"})");
  add("s2");
  add("s3");
  must(set_share(*db_, {"s1", "key", "read"}));
  must(update_session_state(*db_, "s1", "gone", "", 10));
  must(update_session_state(*db_, "s2", "gone", "", 20));
  EXPECT_EQ(must(remove_sessions_ended_before(*db_, 20)), 1);
  EXPECT_EQ(find_session(*db_, "s1").error().code, Errc::not_found);
  EXPECT_EQ(must(one_number(*db_, -1, "SELECT count(*) FROM session_labels")), 0);
  EXPECT_TRUE(must(shares_of(*db_, "s1")).empty());
  EXPECT_TRUE(must(remove_session(*db_, "s2")));
  EXPECT_TRUE(find_session(*db_, "s3"));
}

TEST_F(Sessions, TheNewestKeepTheirArtifacts) {
  for (const char* id : {"s1", "s2", "s3", "s4", "s5", "other"}) add(id);
  must(db_->script("UPDATE sessions SET owner = 'bob' WHERE id = 'other'"));
  std::int64_t ended = 0;
  for (const char* id : {"s1", "s2", "s3", "other"}) {
    must(update_session_state(*db_, id, "gone", "", ++ended));
    must(update_session_artifacts(*db_, id, true, 100));
  }
  must(update_session_state(*db_, "s4", "gone", "", ++ended));
  must(update_session_artifacts(*db_, "s5", true, 0));  // It lives.
  EXPECT_TRUE(must(find_session(*db_, "s5")).keep_artifacts);
  EXPECT_FALSE(must(find_session(*db_, "s4")).keep_artifacts);
  auto keeping = [&] {
    Ids ids = must(sessions_with_artifacts(*db_));
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  EXPECT_EQ(keeping(), (Ids{"other", "s1", "s2", "s3"}));
  EXPECT_EQ(must(forget_artifacts_beyond(*db_, "alice", 300)), 0);
  EXPECT_EQ(must(forget_artifacts_beyond(*db_, "alice", 200)), 1);
  EXPECT_EQ(keeping(), (Ids{"other", "s2", "s3"}));
  EXPECT_EQ(must(forget_artifacts_beyond(*db_, "alice", 50)), 2);
  EXPECT_EQ(keeping(), (Ids{"other"}));
  EXPECT_TRUE(must(find_session(*db_, "s5")).keep_artifacts);
}

TEST_F(Sessions, AreListedFromNewToOld) {
  add("b", 1000);
  add("c", 2000);
  add("a", 1000);
  EXPECT_EQ(ids({}), (Ids{"c", "a", "b"}));
  EXPECT_EQ(must(list_sessions(*db_, {})).cursor, "");
}

TEST_F(Sessions, PagesMissNothingAmongEqualTimes) {
  std::set<std::string> expected;
  for (int i = 0; i < 50; ++i) {
    std::string id = random_name(8);
    add(id, 1000 + i % 3);
    expected.insert(id);
  }
  Ids whole = ids({.limit = 1000});
  for (std::int64_t limit : {1, 7, 25, 49, 50, 51}) {
    SessionFilter filter;
    filter.limit = limit;
    EXPECT_EQ(all_ids(filter), whole) << limit;
  }
  EXPECT_EQ(std::set<std::string>(whole.begin(), whole.end()), expected);
}

TEST_F(Sessions, NewOnesDoNotDisturbTheNextPage) {
  for (int i = 0; i < 10; ++i) add("s" + std::to_string(i), i);
  SessionPage first = must(list_sessions(*db_, {.limit = 5}));
  add("new", 100);
  must(remove_session(*db_, "s5"));  // The last of the first page: its place still counts.
  EXPECT_EQ(ids({.limit = 5, .cursor = first.cursor}), (Ids{"s4", "s3", "s2", "s1", "s0"}));
}

TEST_F(Sessions, FiltersNarrowTogether) {
  add("s1", 1, R"({"team":"a","tier":"gold"})");
  add("s2", 2, R"({"team":"a","tier":"lead"})");
  add("s3", 3, R"({"team":"b","tier":"gold"})");
  must(update_session_state(*db_, "s3", "paused", "", std::nullopt));
  EXPECT_EQ(ids({.labels = {{"team", "a"}}}), (Ids{"s2", "s1"}));
  EXPECT_EQ(ids({.labels = {{"team", "a"}, {"tier", "gold"}}}), (Ids{"s1"}));
  EXPECT_EQ(ids({.labels = {{"team", "b"}, {"tier", "lead"}}}), (Ids{}));
  EXPECT_EQ(ids({.states = {"paused"}}), (Ids{"s3"}));
  EXPECT_EQ(ids({.states = {"paused", "running"}, .labels = {{"tier", "gold"}}}),
            (Ids{"s3", "s1"}));
  EXPECT_EQ(ids({.environment = "python", .provider = "native"}), (Ids{"s3", "s2", "s1"}));
  EXPECT_EQ(ids({.environment = "node"}), (Ids{}));
  EXPECT_EQ(ids({.provider = "docker"}), (Ids{}));
}

TEST_F(Sessions, ChangedLabelsAreFoundAndFormerOnesAreNot) {
  add("s1", 1, R"({"a":"1","b":"2"})");
  must(update_session_labels(*db_, "s1", R"({"b":"3","n":4,"yes":true})"));
  EXPECT_EQ(ids({.labels = {{"a", "1"}}}), (Ids{}));
  EXPECT_EQ(ids({.labels = {{"b", "2"}}}), (Ids{}));
  EXPECT_EQ(ids({.labels = {{"b", "3"}}}), (Ids{"s1"}));
  EXPECT_EQ(ids({.labels = {{"n", "4"}, {"yes", "true"}}}), (Ids{"s1"}));
}

TEST_F(Sessions, LabelsAreAnObject) {
  for (const char* labels : {"", "[]", "null", "{", "\"x\"", "{\"a\":}", "{} {}"}) {
    SessionRecord r = record("s1");
    r.labels = labels;
    EXPECT_EQ(insert_session(*db_, r).error().code, Errc::invalid) << labels;
  }
  EXPECT_EQ(find_session(*db_, "s1").error().code, Errc::not_found);
  add("s1", 1, R"({"twice":"a","twice":"b"})");
  EXPECT_EQ(ids({.labels = {{"twice", "b"}}}), (Ids{"s1"}));
}

TEST_F(Sessions, OthersSeeWhatIsSharedWithThem) {
  add("mine");
  SessionRecord theirs = record("theirs");
  theirs.owner = "bob";
  must(insert_session(*db_, theirs));
  EXPECT_EQ(ids({.visible_to = "alice"}), (Ids{"mine"}));
  must(set_share(*db_, {"theirs", "alice", "read"}));
  EXPECT_EQ(ids({.visible_to = "alice"}), (Ids{"mine", "theirs"}));
  EXPECT_EQ(ids({.visible_to = "carol"}), (Ids{}));
  EXPECT_EQ(ids({.visible_to = ""}), (Ids{}));
  EXPECT_EQ(ids({}), (Ids{"mine", "theirs"}));
}

// A cursor is a place in time, not a right: another owner's leads only to one's own rows.
TEST_F(Sessions, ACursorOfAnotherOwnerShowsOnlyOnesOwn) {
  for (int i = 0; i < 6; ++i) {
    SessionRecord r = record("s" + std::to_string(i));
    r.owner = i % 2 == 0 ? "alice" : "bob";
    must(insert_session(*db_, r));
  }
  SessionPage page = must(list_sessions(*db_, {.visible_to = "bob", .limit = 1}));
  EXPECT_EQ(ids({.visible_to = "alice", .cursor = page.cursor}), (Ids{"s2", "s4"}));
}

TEST_F(Sessions, SharesAreSetReplacedAndRemoved) {
  add("s1");
  must(set_share(*db_, {"s1", "k2", "read"}));
  must(set_share(*db_, {"s1", "k1", "read"}));
  must(set_share(*db_, {"s1", "k1", "write"}));
  EXPECT_EQ(must(shares_of(*db_, "s1")),
            (std::vector<ShareRecord>{{"s1", "k1", "write"}, {"s1", "k2", "read"}}));
  EXPECT_EQ(must(access_of(*db_, "s1", "k1")), "write");
  EXPECT_TRUE(must(remove_share(*db_, "s1", "k1")));
  EXPECT_FALSE(must(remove_share(*db_, "s1", "k1")));
  EXPECT_EQ(must(access_of(*db_, "s1", "k1")), std::nullopt);
  EXPECT_EQ(set_share(*db_, {"nothing", "k1", "read"}).error().code, Errc::conflict);
}

TEST_F(Sessions, HostileTextIsOnlyText) {
  add("innocent", 1, R"({"a":"b"})");
  for (const char* hostile : test::kHostile) {
    SessionRecord r = record(hostile);
    r.owner = r.provider = r.environment = r.state = r.end_reason = hostile;
    must(insert_session(*db_, r));
    EXPECT_EQ(must(find_session(*db_, hostile)), r);
    EXPECT_EQ(ids({.visible_to = hostile}), (Ids{hostile}));
    EXPECT_EQ(ids({.states = {hostile}}), (Ids{hostile}));
    EXPECT_EQ(ids({.environment = hostile}), (Ids{hostile}));
    EXPECT_EQ(ids({.provider = hostile}), (Ids{hostile}));
    EXPECT_EQ(ids({.labels = {{hostile, hostile}}}), (Ids{}));
    EXPECT_EQ(ids({.labels = {{"a", hostile}}}), (Ids{}));
    EXPECT_EQ(list_sessions(*db_, {.cursor = hostile}).error().code, Errc::invalid);
    EXPECT_EQ(must(list_sessions(*db_, {.cursor = to_cursor({5000, hostile})})).sessions.size(),
              2U);
    EXPECT_TRUE(must(remove_session(*db_, hostile)));
  }
  EXPECT_EQ(ids({}), (Ids{"innocent"}));
}

TEST_F(Sessions, TooMuchAtOnceIsRefused) {
  EXPECT_EQ(list_sessions(*db_, {.limit = 1001}).error().code, Errc::invalid);
  EXPECT_EQ(list_sessions(*db_, {.limit = 0}).error().code, Errc::invalid);
  SessionFilter many;
  for (int i = 0; i < 33; ++i) many.labels.emplace(std::to_string(i), "x");
  EXPECT_EQ(list_sessions(*db_, many).error().code, Errc::invalid);
  EXPECT_EQ(list_sessions(*db_, {.states = std::vector<std::string>(33, "x")}).error().code,
            Errc::invalid);
}

}  // namespace
}  // namespace asr
