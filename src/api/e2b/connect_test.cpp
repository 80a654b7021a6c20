#include "api/e2b/connect.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

TEST(Connect, EnvelopesComeOutAsTheyWentIn) {
  std::string bytes;
  append_message(bytes, json::object{{"a", 1}});
  append_envelope(bytes, 0, "");
  append_end(bytes);
  EXPECT_EQ(bytes.substr(0, 5), std::string("\0\0\0\0\7", 5));
  for (std::size_t step : {1U, 3U, 1000U}) {
    EnvelopeReader reader(100);
    std::vector<Envelope> all;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      reader.feed(std::string_view(bytes).substr(at, step));
      for (;;) {
        auto envelope = reader.next();
        ASSERT_TRUE(envelope);
        if (!*envelope) break;
        all.push_back(**envelope);
      }
    }
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[0].payload, R"({"a":1})");
    EXPECT_EQ(all[1].payload, "");
    EXPECT_EQ(all[2].flags, Envelope::kEnd);
    EXPECT_EQ(all[2].payload, "{}");
    EXPECT_TRUE(reader.is_between());
  }
}

TEST(Connect, RefusesWhatIsTooLargeOrCompressed) {
  EnvelopeReader large(10);
  large.feed(std::string("\0\0\0\0\x0b", 5));
  auto refused = large.next();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::exhausted);
  EnvelopeReader huge(10);
  huge.feed("\0\xff\xff\xff\xff");
  huge.feed("\xff");
  EXPECT_FALSE(EnvelopeReader(10).next()->has_value());
  EnvelopeReader packed(10);
  packed.feed(std::string("\1\0\0\0\0", 5));
  EXPECT_FALSE(packed.next());
}

TEST(Connect, ErrorsOfStreamsStandInTheirEnd) {
  std::string bytes;
  append_end(bytes, ConnectError{ConnectCode::invalid_argument, "cwd '/x' does not exist"});
  EXPECT_EQ(bytes.substr(5),
            R"({"error":{"code":"invalid_argument","message":"cwd '/x' does not exist"}})");
}

TEST(Connect, StatusesAreThoseOfTheProtocol) {
  EXPECT_EQ(status_of(ConnectCode::canceled), 499U);
  EXPECT_EQ(status_of(ConnectCode::not_found), 404U);
  EXPECT_EQ(status_of(ConnectCode::already_exists), 409U);
  EXPECT_EQ(status_of(ConnectCode::resource_exhausted), 429U);
  EXPECT_EQ(status_of(ConnectCode::deadline_exceeded), 504U);
  EXPECT_EQ(status_of(ConnectCode::unauthenticated), 401U);
  EXPECT_EQ(status_of(ConnectCode::unavailable), 503U);
  EXPECT_EQ(connect_error(Error(Errc::not_found, "x")).code, ConnectCode::not_found);
  EXPECT_EQ(connect_error(Error(Errc::os, "x")).code, ConnectCode::internal);
}

TEST(Connect, HeadersWithTimes) {
  EXPECT_EQ(connect_timeout("")->count(), 0);
  EXPECT_EQ(connect_timeout("0")->count(), 0);
  EXPECT_EQ(connect_timeout("60000")->count(), 60000);
  for (const char* bad : {"-1", "x", "1x", "12345678901", " 1"}) EXPECT_FALSE(connect_timeout(bad));
  EXPECT_EQ(keepalive_interval("50").count(), 50);
  for (const char* bad : {"", "0", "-5", "x", "999999999999"})
    EXPECT_EQ(keepalive_interval(bad).count(), 90);
}

TEST(Connect, TheEndIsToldBeforeTheClientGivesUp) {
  using std::chrono::milliseconds;
  EXPECT_EQ(time_to_be_told(milliseconds(0)), milliseconds(0));  // no limit
  EXPECT_EQ(time_to_be_told(milliseconds(1)), milliseconds(1));
  EXPECT_EQ(time_to_be_told(milliseconds(1000)), milliseconds(950));
  EXPECT_EQ(time_to_be_told(milliseconds(60000)), milliseconds(59750));
}

TEST(Connect, MediaTypes) {
  EXPECT_TRUE(is_media("application/json", "application/json"));
  EXPECT_TRUE(is_media("Application/JSON ; charset=utf-8", "application/json"));
  EXPECT_FALSE(is_media("application/connect+json", "application/json"));
  EXPECT_FALSE(is_media("", "application/json"));
}

TEST(Connect, FieldsInEitherSpelling) {
  json::object message = parse_json(R"({"watcherId":"a","include_entry":true,"pid":"12","n":7,
      "none":null,"b":"AQI","u":"-_8="})")
                             ->as_object();
  EXPECT_EQ(*text_field(message, "watcherId"), "a");
  EXPECT_TRUE(*bool_field(message, "includeEntry", false));
  EXPECT_EQ(*int_field(message, "pid", 0), 12);
  EXPECT_EQ(*int_field(message, "n", 0), 7);
  EXPECT_EQ(*int_field(message, "none", 3), 3);
  EXPECT_EQ(*bytes_field(message, "b"), "\1\2");
  EXPECT_EQ(*bytes_field(message, "u"), "\xfb\xff");
  EXPECT_FALSE(text_field(message, "n"));
  EXPECT_FALSE(bool_field(message, "n", false));
  EXPECT_FALSE(int_field(message, "watcherId", 0));
}

}  // namespace
}  // namespace asr
