#include "api/e2b/sandbox_request.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace asr {
namespace {

json::object object(const char* text) { return json::parse(text).as_object(); }

RequestHead asked(std::string query) {
  RequestHead head;
  head.query = std::move(query);
  return head;
}

TEST(E2bMetadata, IsDecodedThreeTimes) {
  // The parameter itself has been decoded once when it gets here.
  auto metadata = e2b_metadata_from("odd%2520key=a%253Db%2526c%2520%25252F&for=me");
  ASSERT_TRUE(metadata);
  EXPECT_EQ(metadata->at("odd key"), "a=b&c %2F");
  EXPECT_EQ(metadata->at("for"), "me");
}

TEST(E2bMetadata, RefusesWhatIsNoEncodingAndTheNameThatIsTaken) {
  EXPECT_FALSE(e2b_metadata_from("a=%25zz"));
  EXPECT_FALSE(e2b_metadata_from("e2b.template=base"));
}

TEST(E2bFilter, SecondGenerationHasStatesOrderAndPages) {
  auto filter =
      e2b_filter_from(asked("state=running%2Cpaused&order=asc&limit=2&template=base&startedAfter="
                            "2026-01-31T12:00:00.250Z&nextToken=abc"),
                      E2bGeneration::second);
  ASSERT_TRUE(filter);
  EXPECT_EQ(filter->states, (std::vector<std::string>{"creating", "ready", "paused", "stopped"}));
  EXPECT_EQ(filter->order, SessionFilter::Order::oldest_first);
  EXPECT_EQ(filter->limit, 2);
  EXPECT_EQ(filter->labels.at("e2b.template"), "base");
  EXPECT_EQ(filter->created_after_ms, 1769860800250);
  EXPECT_EQ(filter->cursor, "abc");
}

TEST(E2bFilter, FirstGenerationKnowsRunningOnesOnly) {
  auto filter = e2b_filter_from(asked("state=paused"), E2bGeneration::first);
  ASSERT_TRUE(filter);
  EXPECT_EQ(filter->states, std::vector<std::string>{"ready"});
}

TEST(E2bFilter, RefusesWhatItDoesNotKnow) {
  for (const char* query :
       {"limit=0", "limit=101", "limit=x", "state=gone", "order=up", "startedAfter=yesterday"})
    EXPECT_FALSE(e2b_filter_from(asked(query), E2bGeneration::second)) << query;
}

TEST(E2bTime, KnowsZones) {
  EXPECT_EQ(*e2b_time_from("1970-01-01T00:00:01Z"), 1000);
  EXPECT_EQ(*e2b_time_from("1970-01-01T01:00:01+01:00"), 1000);
  EXPECT_FALSE(e2b_time_from("1970-01-01"));
}

TEST(E2bCreate, NullIsAbsentAndStrangersAreIgnored) {
  auto create = e2b_create_from(object(R"({"templateID": "base", "metadata": null, "timeout": null,
      "autoPause": null, "network": null, "nobodyKnows": [1]})"),
                                E2bGeneration::second, {});
  ASSERT_TRUE(create) << create.error().what;
  EXPECT_EQ(create->template_name, "base");
  EXPECT_EQ(create->request.ttl, std::chrono::seconds(300));
  EXPECT_EQ(create->request.at_expiry, AtExpiry::end);
  EXPECT_EQ(create->request.network.mode, NetworkMode::public_only);
  EXPECT_EQ(create->request.spec.network, Network::proxied);
}

TEST(E2bCreate, TheFirstGenerationIsShort) {
  auto create = e2b_create_from(object(R"({"templateID": "x"})"), E2bGeneration::first, {});
  ASSERT_TRUE(create);
  EXPECT_EQ(create->request.ttl, std::chrono::seconds(15));
}

TEST(E2bCreate, LifeAndLooks) {
  auto create = e2b_create_from(
      object(R"({"templateID": "x", "autoPause": true, "autoResume": {"enabled": true},
      "allow_internet_access": false, "envVars": {"A": "b"},
      "network": {"allowPublicTraffic": false, "maskRequestHost": "localhost:${PORT}"},
      "volumeMounts": [{"name": "v", "path": "/mnt/v"}]})"),
      E2bGeneration::second, {});
  ASSERT_TRUE(create) << create.error().what;
  const SessionRequest& request = create->request;
  EXPECT_EQ(request.at_expiry, AtExpiry::pause);
  EXPECT_TRUE(request.wake_on_traffic);
  EXPECT_EQ(request.network.mode, NetworkMode::allow);
  EXPECT_TRUE(request.network.policy.rules().empty());
  EXPECT_EQ(request.preview.access, PreviewRules::Access::token);
  EXPECT_EQ(request.preview.host_for(3000), "localhost:3000");
  EXPECT_EQ(request.env.at("A"), "b");
  ASSERT_EQ(request.volumes.size(), 1U);
  EXPECT_EQ(request.volumes[0].path, "/mnt/v");
}

TEST(E2bCreate, RefusesWhatCannotBe) {
  for (const char* body :
       {R"({})", R"({"templateID": 1})", R"({"templateID": "x", "timeout": 0})",
        R"({"templateID": "x", "timeout": -1})", R"({"templateID": "x", "timeout": 90000})",
        R"({"templateID": "x", "metadata": {"a": 1}})", R"({"templateID": "x", "mcp": {}})",
        R"({"templateID": "x", "iam": {"tokens": {}}})",
        R"({"templateID": "x", "envVars": {"1": ""}})",
        R"({"templateID": "x", "metadata": {"e2b.template": "y"}})",
        R"({"templateID": "x", "network": {"maskRequestHost": "a\r\nb"}})"})
    EXPECT_FALSE(e2b_create_from(object(body), E2bGeneration::second, {})) << body;
}

TEST(E2bSandboxId, MayHaveATail) {
  EXPECT_EQ(e2b_sandbox_id("abc123"), "abc123");
  EXPECT_EQ(e2b_sandbox_id("abc123-6532622b"), "abc123");
}

}  // namespace
}  // namespace asr
