#include "provider/e2b/answers.hpp"

#include <gtest/gtest.h>

#include "provider/e2b/both_ways.hpp"
#include "provider/e2b/envelopes.hpp"

namespace asr::e2b {
namespace {

json::value parsed(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::value();
}

TEST(Answers, APlaceIsTakenWhole) {
  auto place = place_in(
      parsed(R"({"sandboxID":"i0abc","envdAccessToken":"t0k","domain":"e2b.app","clientID":"x"})"));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->id, "i0abc");
  EXPECT_EQ(place->token, "t0k");
  EXPECT_EQ(place->domain, "e2b.app");
  auto bare = place_in(parsed(R"({"sandboxID":"i0","envdAccessToken":null,"domain":null})"));
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->token, "");
}

// What would become a part of a URL, a path or a header.
TEST(Answers, HostilePlacesAreRefused) {
  for (const char* text :
       {R"({})", R"([])", R"("x")", R"(null)", R"({"sandboxID":7})", R"({"sandboxID":""})",
        R"({"sandboxID":"../../etc"})", R"({"sandboxID":"a/b"})", R"({"sandboxID":"A"})",
        R"({"sandboxID":"a?b"})", R"({"sandboxID":"a","envdAccessToken":"x\r\nHost: evil"})",
        R"({"sandboxID":"a","envdAccessToken":["x"]})", R"({"sandboxID":"a","domain":"e/f"})",
        R"({"sandboxID":"a","domain":"u@h"})", R"({"sandboxID":"a","domain":{}})"})
    EXPECT_FALSE(place_in(parsed(text))) << text;
  std::string long_one = R"({"sandboxID":")" + std::string(5000, 'a') + R"("})";
  EXPECT_FALSE(place_in(parsed(long_one)));
}

TEST(Answers, ListsTellWhatIsOurs) {
  auto all = list_in(parsed(R"([
    {"sandboxID":"a","state":"running","metadata":{"agent-sandbox-server":"s","agent-sandbox-session":"x"}},
    {"sandboxID":"b","state":"paused"}])"));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[0].server, "s");
  EXPECT_EQ((*all)[0].session, "x");
  EXPECT_TRUE((*all)[1].paused);
  EXPECT_EQ((*all)[1].server, "");
  for (const char* text : {R"({})", R"([7])", R"([{"sandboxID":"a","state":"odd"}])",
                           R"([{"sandboxID":"a","metadata":{"agent-sandbox-server":7}}])"})
    EXPECT_FALSE(list_in(parsed(text))) << text;
}

TEST(Answers, FilesOfEveryKind) {
  auto info = file_in(parsed(R"({"name":"x","type":"FILE_TYPE_FILE","size":"12","mode":420,
    "owner":"user","group":"root","modifiedTime":"2026-01-02T03:04:05.5Z"})"));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->size, 12U);
  EXPECT_EQ(info->mode, 0644U);
  EXPECT_EQ(info->uid, 1000U);
  EXPECT_EQ(info->gid, 0U);
  EXPECT_EQ(std::chrono::duration_cast<std::chrono::milliseconds>(info->modified.time_since_epoch())
                .count(),
            1767323045500);
  auto link = file_in(parsed(R"({"name":"l","type":"FILE_TYPE_DIRECTORY","symlinkTarget":"/x"})"));
  ASSERT_TRUE(link);
  EXPECT_EQ(link->type, FileType::symlink);
  for (const char* text : {R"({"name":"a/b"})", R"({"name":7})", R"({"name":"x","size":-1})",
                           R"({"name":"x","size":"many"})", R"({"name":"x","size":1e300})",
                           R"({"name":"x","mode":{}})"})
    EXPECT_FALSE(file_in(parsed(text))) << text;
}

TEST(Answers, ProgramsBeginWriteAndEnd) {
  auto of = [](std::string_view text) { return process_event_in(parsed(text).get_object()); };
  EXPECT_EQ(of(R"({"event":{"start":{"pid":7}}})")->pid, 7);
  auto data = of(R"({"event":{"data":{"stderr":"aGk="}}})");
  EXPECT_EQ(data->chunk.data, "hi");
  EXPECT_EQ(data->chunk.stream, OutputChunk::Stream::err);
  auto end = of(R"({"event":{"end":{"exited":true,"status":"exit status 3","exitCode":3}}})");
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(end->signal, 0);
  EXPECT_EQ(of(R"({"event":{"end":{"exitCode":-1,"status":"signal: killed"}}})")->signal, 9);
  EXPECT_EQ(of(R"({"event":{"end":{"exitCode":-1,"status":"signal: terminated"}}})")->signal, 15);
  EXPECT_EQ(
      of(R"({"event":{"end":{"exitCode":-1,"status":"signal: cPU time limit exceeded"}}})")->signal,
      24);
  EXPECT_EQ(of(R"({"event":{"end":{"exited":true,"status":"exit status 0"}}})")->exit_code, 0);
  EXPECT_EQ(of(R"({"event":{"keepalive":{}}})")->kind, ProcessEvent::Kind::other);
  for (const char* text :
       {R"({"event":7})", R"({"event":{"start":{}}})", R"({"event":{"start":{"pid":-1}}})",
        R"({"event":{"start":{"pid":99999999999}}})", R"({"event":{"data":{"stdout":7}}})",
        R"({"event":{"data":{"stdout":"***"}}})", R"({"event":{"end":{"exitCode":"x"}}})",
        R"({"event":{"end":{"exitCode":99999}}})", R"({"event":{"end":[]}})"})
    EXPECT_FALSE(of(text)) << text;
}

TEST(Answers, ErrorsAreShortAndPrintable) {
  auto error =
      connect_error(parsed(R"({"code":"not_found","message":"no\u0007 such"})").get_object());
  EXPECT_EQ(error.code, Errc::not_found);
  EXPECT_EQ(error.what, "no? such");
  EXPECT_LE(e2b::shown(std::string(100'000, 'x')).size(), 300U);
  EXPECT_EQ(connect_error({{"code", 7}}).code, Errc::provider);
}

TEST(Envelopes, CutAnywhere) {
  std::string text = envelope(json::object{{"a", 1}}) + envelope(json::object{{"b", 2}});
  text += std::string("\x02\0\0\0\x02{}", 7);
  for (std::size_t step = 1; step <= text.size(); ++step) {
    Envelopes envelopes;
    int messages = 0;
    bool ended = false;
    for (std::size_t at = 0; at < text.size(); at += step) {
      envelopes.feed(std::string_view(text).substr(at, step));
      for (;;) {
        auto message = envelopes.next();
        ASSERT_TRUE(message);
        if (!*message) break;
        ended = (*message)->last;
        ++messages;
      }
    }
    EXPECT_EQ(messages, 3);
    EXPECT_TRUE(ended);
  }
}

TEST(Envelopes, NonsenseIsRefused) {
  auto first = [](std::string text) {
    Envelopes envelopes;
    envelopes.feed(text);
    return envelopes.next();
  };
  EXPECT_FALSE(first(std::string("\0\x7f\xff\xff\xff", 5)));  // too long
  EXPECT_FALSE(first(std::string("\x01\0\0\0\x02{}", 7)));    // compressed
  EXPECT_FALSE(first(std::string("\x80\0\0\0\x02{}", 7)));    // unknown
  EXPECT_FALSE(first(std::string("\0\0\0\0\x03[1]", 8)));     // no object
  EXPECT_FALSE(first(std::string("\0\0\0\0\x03{\"a", 8)));    // no JSON
  EXPECT_FALSE(first("HTTP/1.1 200 OK\r\n"));
}

TEST(BothWays, LinesAndWhatIsNone) {
  BothWays lines;
  ASSERT_TRUE(lines.feed("oaGk=\nr"));
  auto line = lines.next();
  ASSERT_TRUE(line && *line);
  EXPECT_EQ((*line)->chunk.data, "hi");
  EXPECT_FALSE(*lines.next());
  ASSERT_TRUE(lines.feed("aGk=\nx-9\n"));
  EXPECT_EQ((*lines.next())->chunk.stream, OutputChunk::Stream::reply);
  auto end = lines.next();
  EXPECT_EQ((*end)->kind, BothWays::Line::Kind::ended);
  EXPECT_EQ((*end)->number, -9);
  for (const char* text : {"\n", "zzz\n", "o***\n", "xabc\n", "s\n"}) {
    BothWays odd;
    ASSERT_TRUE(odd.feed(text));
    EXPECT_FALSE(odd.next()) << text;
  }
  BothWays endless;
  EXPECT_FALSE(endless.feed(std::string(BothWays::kLongestLine + 1, 'o')));
}

TEST(BothWays, WhoComesLateBeginsWithAWholeLine) {
  BothWays lines;
  lines.skip_to_next_line();
  ASSERT_TRUE(lines.feed("the rest of a line"));
  ASSERT_TRUE(lines.feed(" that was\noaGk=\n"));
  auto line = lines.next();
  ASSERT_TRUE(line && *line);
  EXPECT_EQ((*line)->chunk.data, "hi");
}

}  // namespace
}  // namespace asr::e2b
