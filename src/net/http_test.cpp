#include "net/http.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

std::string head(std::string_view fields, std::string_view line = "GET / HTTP/1.1") {
  return std::string(line) + "\r\nHost: here\r\n" + std::string(fields) + "\r\n";
}

TEST(Head, OrdinaryOnesPass) {
  EXPECT_TRUE(check_head(head("")));
  EXPECT_TRUE(check_head("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(check_head(head("Content-Length: 12\r\nX:\r\n", "POST /a?b=%20 HTTP/1.1")));
  EXPECT_TRUE(check_head(head("Transfer-Encoding: Chunked\r\n", "POST / HTTP/1.1")));
}

class Ambiguous : public testing::TestWithParam<std::string> {};
TEST_P(Ambiguous, IsRefused) { EXPECT_FALSE(check_head(GetParam())) << GetParam(); }
INSTANTIATE_TEST_SUITE_P(
    Heads, Ambiguous,
    testing::Values(
        head("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        head("Content-Length: 1\r\nContent-Length: 1\r\n"), head("Content-Length: 1, 1\r\n"),
        head("Content-Length: +1\r\n"), head("Content-Length: -1\r\n"),
        head("Content-Length: 1e3\r\n"), head("Content-Length: 9223372036854775808\r\n"),
        head("Content-Length:\r\n"), head("Transfer-Encoding: xchunked\r\n"),
        head("Transfer-Encoding: chunked, identity\r\n"), head("Transfer-Encoding: identity\r\n"),
        head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        head("Transfer-Encoding:\tchunked\r\nContent-Length: 0\r\n"),
        head("Transfer-Encoding : chunked\r\n"), head("Host: b\r\n"), "GET / HTTP/1.1\r\n\r\n",
        head("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"), head("A: b\r\n c\r\n"),
        head("A: b\n"), head("A: b\rc\r\n"), head(std::string("A: b\0c\r\n", 8)),
        head("no colon\r\n"), head(": empty\r\n"), head("A\x01: b\r\n"), head("A: b\x7f\r\n"),
        head("", "GET  / HTTP/1.1"), head("", "GET / HTTP/2.0"), head("", "GET http://a/ HTTP/1.1"),
        head("", "GET / x HTTP/1.1"), head("", "GET /\xff HTTP/1.1"), head("", "G(T / HTTP/1.1"),
        head("", "GET /"), "\r\n\r\n"));

TEST(Headers, NamesHaveNoCaseAndListsHaveTokens) {
  Headers headers;
  headers.add("Connection", "keep-alive, Upgrade");
  headers.add("connection", "X-Thing");
  EXPECT_TRUE(headers.lists("CONNECTION", "upgrade"));
  EXPECT_TRUE(headers.lists("Connection", "x-thing"));
  EXPECT_FALSE(headers.lists("Connection", "up"));
  EXPECT_EQ(headers.count("connection"), 2U);
  headers.set("Connection", "close");
  EXPECT_EQ(headers.get("connection"), "close");
}

TEST(Query, IsDecodedOnceAndNothingHides) {
  RequestHead request;
  request.query = "path=%2Fa%20b+c&empty=&flag&path=second&bad=%zz";
  EXPECT_FALSE(request.parameter("path"));  // One malformed parameter spoils all of them.
  request.query = "path=%2Fa%20b+c&empty=&flag&path=second";
  EXPECT_EQ(request.parameter("path"), "/a b c");
  EXPECT_EQ(request.parameter("empty"), "");
  EXPECT_EQ(request.parameter("flag"), "");
  EXPECT_FALSE(request.parameter("none"));
  EXPECT_EQ(percent_decode("%252e"), "%2e");
  EXPECT_FALSE(percent_decode("a%00b"));
  EXPECT_FALSE(percent_decode("a%4"));
  EXPECT_EQ(percent_encode("/a b\n"), "%2Fa%20b%0A");
}

TEST(Range, OneRangeOrTheWhole) {
  ByteRange range;
  EXPECT_EQ(parse_range("bytes=0-9", 100, range), RangeVerdict::part);
  EXPECT_EQ(range.last, 9U);
  EXPECT_EQ(parse_range("bytes=90-", 100, range), RangeVerdict::part);
  EXPECT_EQ(range.last, 99U);
  EXPECT_EQ(parse_range("bytes=-5", 100, range), RangeVerdict::part);
  EXPECT_EQ(range.first, 95U);
  EXPECT_EQ(parse_range("bytes=-500", 100, range), RangeVerdict::part);
  EXPECT_EQ(range.first, 0U);
  EXPECT_EQ(parse_range("bytes=100-", 100, range), RangeVerdict::impossible);
  EXPECT_EQ(parse_range("bytes=-0", 100, range), RangeVerdict::impossible);
  EXPECT_EQ(parse_range("bytes=0-1,3-4", 100, range), RangeVerdict::whole);
  EXPECT_EQ(parse_range("bytes=9-1", 100, range), RangeVerdict::whole);
  EXPECT_EQ(parse_range("lines=1-2", 100, range), RangeVerdict::whole);
  EXPECT_EQ(parse_range("bytes=18446744073709551616-", 100, range), RangeVerdict::whole);
}

TEST(Date, IsWrittenAsTheStandardWants) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

}  // namespace
}  // namespace asr
