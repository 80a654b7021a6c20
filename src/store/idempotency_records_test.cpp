#include "store/idempotency_records.hpp"

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class Idempotency : public test::RecordTest {
 protected:
  Claim claim(std::string_view owner, std::string_view key, std::string_view hash,
              std::int64_t now_ms = 5) {
    return must(claim_idempotency(*db_, owner, key, hash, now_ms));
  }
};

TEST_F(Idempotency, TheFirstDoesTheWorkTheSecondGetsItsAnswer) {
  Claim first = claim("alice", "k", "hash");
  EXPECT_EQ(first.outcome, Claimed::mine);
  Claim early = claim("alice", "k", "hash", 6);
  EXPECT_EQ(early.outcome, Claimed::same);
  EXPECT_EQ(early.record.status, 0) << "still at work";

  first.record.session = "s1";
  first.record.status = 201;
  first.record.response = std::string("{\"id\":\"s1\"}\0\xff", 13);
  must(finish_idempotency(*db_, first.record));
  Claim late = claim("alice", "k", "hash", 7);
  EXPECT_EQ(late.outcome, Claimed::same);
  EXPECT_EQ(late.record, first.record);
  EXPECT_EQ(late.record.created_ms, 5);
}

TEST_F(Idempotency, AnotherRequestUnderTheSameKeyIsTold) {
  claim("alice", "k", "hash");
  EXPECT_EQ(claim("alice", "k", "different").outcome, Claimed::other_request);
  EXPECT_EQ(claim("alice", "k", "").outcome, Claimed::other_request);
}

TEST_F(Idempotency, OwnersDoNotMeet) {
  claim("alice", "k", "hash");
  EXPECT_EQ(claim("bob", "k", "hash").outcome, Claimed::mine);
  for (const char* hostile : test::kHostile) {
    EXPECT_EQ(claim(hostile, "k", "hash").outcome, Claimed::mine);
    EXPECT_EQ(claim("alice", hostile, "hash").outcome, Claimed::mine);
  }
}

TEST_F(Idempotency, WhatIsForgottenMayBeTriedAgain) {
  claim("alice", "k", "hash");
  EXPECT_TRUE(must(forget_idempotency(*db_, "alice", "k")));
  EXPECT_FALSE(must(forget_idempotency(*db_, "alice", "k")));
  EXPECT_EQ(claim("alice", "k", "different").outcome, Claimed::mine);
  EXPECT_EQ(finish_idempotency(*db_, {.owner = "alice", .key = "x"}).error().code, Errc::not_found);
}

TEST_F(Idempotency, OldOnesAreRemoved) {
  claim("alice", "old", "hash", 5);
  claim("alice", "new", "hash", 9);
  EXPECT_EQ(must(remove_idempotency_before(*db_, 9)), 1);
  EXPECT_EQ(claim("alice", "new", "hash").outcome, Claimed::same);
  EXPECT_EQ(claim("alice", "old", "hash").outcome, Claimed::mine);
}

}  // namespace
}  // namespace asr
