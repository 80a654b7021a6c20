#include "api/e2b/signature.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

constexpr std::string_view kToken = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";

RequestHead head_of(std::string method, std::string query) {
  RequestHead head;
  head.method = std::move(method);
  head.path = "/files";
  head.query = std::move(query);
  return head;
}

// The vector of E2B's own tests.
TEST(E2bSignature, IsTheOneThatE2bMakes) {
  SignedRequest request{"hello.txt", "read", "user", std::nullopt, ""};
  EXPECT_EQ(signature_of(request, kToken), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
}

TEST(E2bSignature, BelongsToAllThatWasSigned) {
  auto read = signed_request(head_of(
      "GET",
      "path=hello.txt&username=user&signature=v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"));
  ASSERT_TRUE(read && *read);
  EXPECT_TRUE(is_signed_with(**read, kToken));
  EXPECT_FALSE(is_signed_with(**read, "another"));
  for (auto change :
       {+[](SignedRequest& r) { r.path = "other.txt"; },
        +[](SignedRequest& r) { r.operation = "write"; }, +[](SignedRequest& r) { r.user = ""; },
        +[](SignedRequest& r) { r.expires = 1; },
        +[](SignedRequest& r) { r.signature.pop_back(); }}) {
    SignedRequest changed = **read;
    change(changed);
    EXPECT_FALSE(is_signed_with(changed, kToken));
  }
}

TEST(E2bSignature, Expires) {
  auto timed = signed_request(head_of("POST", "signature=x&signature_expiration=100"));
  ASSERT_TRUE(timed && *timed);
  EXPECT_EQ((*timed)->operation, "write");
  EXPECT_FALSE(is_expired(**timed, 100));
  EXPECT_TRUE(is_expired(**timed, 101));
  EXPECT_FALSE(signed_request(head_of("GET", "signature=x&signature_expiration=soon")));
  EXPECT_FALSE(signed_request(head_of("GET", "path=a"))->has_value());
}

}  // namespace
}  // namespace asr
