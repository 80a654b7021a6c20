#include "store/webhook_records.hpp"

#include "store/record_testing.hpp"
#include "store/webhook_deliveries.hpp"

namespace asr {
namespace {

using test::must;

class Webhooks : public test::RecordTest {
 protected:
  WebhookRecord add(const std::string& id, const std::string& owner = "alice") {
    WebhookRecord r{
        id, owner, "https://example.org", R"(["session.*"])", std::string("\0\1", 2), true, 5,
        0,  ""};
    must(insert_webhook(*db_, r));
    return r;
  }
  std::vector<std::int64_t> due(std::int64_t now_ms, std::int64_t limit = 100) {
    std::vector<std::int64_t> events;
    for (const auto& r : must(due_deliveries(*db_, now_ms, limit))) events.push_back(r.event_id);
    return events;
  }
  std::int64_t delivery(std::int64_t event_id) {
    for (const auto& r : must(list_deliveries(*db_, "w1", 1000)))
      if (r.event_id == event_id) return r.id;
    return -1;
  }
};

using Ids = std::vector<std::int64_t>;

TEST_F(Webhooks, ComeBackAsTheyWent) {
  WebhookRecord r = add("w1");
  add("w2", "bob");
  EXPECT_EQ(must(find_webhook(*db_, "w1")), r);
  EXPECT_EQ(must(list_webhooks(*db_, "alice")), (std::vector{r}));
  r.url = "https://example.org/2";
  r.events = "[]";
  r.sealed = "other";
  r.active = false;
  r.failures = 3;
  r.last_error = "refused";
  must(update_webhook(*db_, r));
  EXPECT_EQ(must(find_webhook(*db_, "w1")), r);
  EXPECT_TRUE(must(remove_webhook(*db_, "w1")));
  EXPECT_FALSE(must(remove_webhook(*db_, "w1")));
  EXPECT_EQ(find_webhook(*db_, "w1").error().code, Errc::not_found);
  EXPECT_EQ(update_webhook(*db_, r).error().code, Errc::not_found);
}

TEST_F(Webhooks, DeliveriesAreDueInTheirOrder) {
  add("w1");
  must(enqueue_delivery(*db_, "w1", 1, 30));
  must(enqueue_delivery(*db_, "w1", 2, 10));
  must(enqueue_delivery(*db_, "w1", 3, 10));
  must(enqueue_delivery(*db_, "w1", 3, 99));
  EXPECT_EQ(due(9), (Ids{}));
  EXPECT_EQ(due(10), (Ids{2, 3}));
  EXPECT_EQ(due(50), (Ids{2, 3, 1}));
  EXPECT_EQ(due(50, 1), (Ids{2}));
  EXPECT_EQ(due_deliveries(*db_, 50, 0).error().code, Errc::invalid);
  EXPECT_EQ(enqueue_delivery(*db_, "w9", 1, 1).error().code, Errc::conflict);
}

TEST_F(Webhooks, FailuresAreCountedUntilOneGoesThrough) {
  add("w1");
  must(enqueue_delivery(*db_, "w1", 1, 0));
  must(delivery_failed(*db_, delivery(1), 20, "refused"));
  EXPECT_EQ(due(19), (Ids{}));
  EXPECT_EQ(due(20), (Ids{1}));
  must(delivery_failed(*db_, delivery(1), 40, "timeout"));
  EXPECT_EQ(must(find_webhook(*db_, "w1")).failures, 2);
  EXPECT_EQ(must(find_webhook(*db_, "w1")).last_error, "timeout");
  must(delivery_done(*db_, delivery(1)));
  EXPECT_EQ(due(100), (Ids{}));
  EXPECT_EQ(must(list_deliveries(*db_, "w1", 1)).front().attempts, 3);
  EXPECT_EQ(must(find_webhook(*db_, "w1")).failures, 0);
  EXPECT_EQ(must(find_webhook(*db_, "w1")).last_error, "");
  EXPECT_EQ(delivery_done(*db_, 999).error().code, Errc::not_found);
}

TEST_F(Webhooks, WhatIsGivenUpOrPausedIsNotDue) {
  WebhookRecord r = add("w1");
  must(enqueue_delivery(*db_, "w1", 1, 0));
  must(enqueue_delivery(*db_, "w1", 2, 0));
  must(delivery_failed(*db_, delivery(1), std::nullopt, "gone"));
  EXPECT_EQ(due(100), (Ids{2}));
  r.active = false;
  must(update_webhook(*db_, r));
  EXPECT_EQ(due(100), (Ids{}));
}

TEST_F(Webhooks, TrimmingKeepsWhatIsPending) {
  add("w1");
  for (int event = 1; event <= 5; ++event) must(enqueue_delivery(*db_, "w1", event, 0));
  for (int event : {2, 3, 5}) must(delivery_done(*db_, delivery(event)));
  EXPECT_EQ(must(trim_deliveries(*db_, "w1", 1)), 2);
  EXPECT_EQ(due(100), (Ids{1, 4}));
  must(remove_webhook(*db_, "w1"));
  EXPECT_EQ(due(100), (Ids{}));
}

}  // namespace
}  // namespace asr
