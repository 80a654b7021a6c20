// What sessions say, in E2B's words.
#include <gtest/gtest.h>
#include <signal.h>
#include <zlib.h>

#include "api/e2b/cell_events.hpp"
#include "api/e2b/data_plane.hpp"
#include "api/e2b/inflate.hpp"
#include "api/e2b/names.hpp"
#include "api/e2b/process_events.hpp"
#include "api/e2b/watching.hpp"

namespace asr {
namespace {

TEST(E2bProcess, EndsAsGoTellsThem) {
  ExitStatus status;
  EXPECT_EQ(to_text(end_event(status)),
            R"({"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}})");
  status.exit_code = 7;
  EXPECT_EQ(end_event(status).at("event").at("end").at("error"), "exit status 7");
  status.reason = EndReason::signaled;
  status.signal = SIGKILL;
  json::value end = end_event(status).at("event").at("end");
  EXPECT_EQ(end.at("exitCode"), -1);
  EXPECT_EQ(end.at("exited"), false);
  EXPECT_EQ(end.at("error"), "signal: killed");
  EXPECT_EQ(signal_text(SIGTERM), "signal: terminated");
  EXPECT_EQ(signal_text(SIGSEGV), "signal: segmentation fault");
}

TEST(E2bProcess, OutputIsBase64OfItsStream) {
  OutputLog::Piece piece{0, OutputChunk::Stream::err, "\xff\n"};
  EXPECT_EQ(to_text(data_event(piece, false)), R"({"event":{"data":{"stderr":"/wo="}}})");
  EXPECT_EQ(to_text(data_event(piece, true)), R"({"event":{"data":{"pty":"/wo="}}})");
}

TEST(E2bFiles, PathsBelongToAHome) {
  EXPECT_EQ(resolve_path("", "/home/user"), "/home/user");
  EXPECT_EQ(resolve_path("a/b", "/home/user"), "/home/user/a/b");
  EXPECT_EQ(resolve_path("~/a", "/root"), "/root/a");
  EXPECT_EQ(resolve_path("~", "/root"), "/root");
  EXPECT_EQ(resolve_path("~a", "/root"), "/root/~a");
  EXPECT_EQ(resolve_path("/a/../b//c/", "/root"), "/b/c");
  EXPECT_EQ(resolve_path("../../../..", "/home/user"), "/");
  EXPECT_EQ(resolve_path("/", "/root"), "/");
}

TEST(E2bFiles, NamesOfOwners) {
  AccountNames names = AccountNames::parse(
      "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\nbad\nx:x:y:z::::\n",
      "root:x:0:\nusers:x:1000:user\n");
  EXPECT_EQ(names.user(0), "root");
  EXPECT_EQ(names.user(1000), "user");
  EXPECT_EQ(names.user(5), "5");
  EXPECT_EQ(names.group(1000), "users");
  EXPECT_EQ(names.users.at("user").home, "/home/user");
  EXPECT_FALSE(names.users.contains("bad"));
}

TEST(E2bFiles, Entries) {
  FileInfo info;
  info.name = "x";
  info.mode = 0644;
  info.uid = 1000;
  info.size = 5;
  AccountNames names;
  json::object entry = entry_info(info, "/home/user/x", names, nullptr);
  EXPECT_EQ(entry["name"], "x");
  EXPECT_EQ(entry["type"], "FILE_TYPE_FILE");
  EXPECT_EQ(entry["permissions"], "-rw-r--r--");
  EXPECT_EQ(entry["owner"], "1000");
  EXPECT_EQ(entry["size"], "5");
  EXPECT_FALSE(entry.contains("symlinkTarget"));
  info.type = FileType::symlink;
  EXPECT_EQ(entry_info(info, "/x", names, nullptr)["type"], "FILE_TYPE_UNSPECIFIED");
  LinkTarget target{"/y", FileInfo()};
  target.info.type = FileType::directory;
  json::object link = entry_info(info, "/x", names, &target);
  EXPECT_EQ(link["type"], "FILE_TYPE_DIRECTORY");
  EXPECT_EQ(link["symlinkTarget"], "/y");
  EXPECT_EQ(permission_text(FileType::directory, 0755), "drwxr-xr-x");
}

TEST(E2bFiles, Metadata) {
  Headers headers;
  headers.add("X-Metadata-Author", "me");
  headers.add("Content-Type", "x");
  auto found = metadata_in(headers);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->values, (std::map<std::string, std::string>{{"user.e2b.author", "me"}}));
  EXPECT_EQ(to_text(metadata_of(found->values)), R"({"author":"me"})");
  EXPECT_EQ(to_text(metadata_of({{"user.other", "x"}})), "{}");
  headers.add("X-Metadata-Bad", "\xc3\xa4");
  EXPECT_FALSE(metadata_in(headers));
  Headers large;
  large.add("X-Metadata-A", std::string(4096, 'x'));
  EXPECT_FALSE(metadata_in(large));
}

TEST(E2bFiles, Events) {
  EXPECT_EQ(to_text(*filesystem_event({WatchEvent::Kind::moved_from, "a/b", false})),
            R"({"name":"a/b","type":"EVENT_TYPE_RENAME"})");
  EXPECT_FALSE(filesystem_event({WatchEvent::Kind::overflow, "", false}));
}

TEST(E2bCells, LinesAreAscii) {
  EXPECT_EQ(ascii_json(json::value("a\u00e4\u20ac\U0001F600\"\n")),
            R"("a\u00e4\u20ac\ud83d\ude00\"\n")");
  std::string line = cell_line("stdout", {{"text", "\u00e4"}});
  EXPECT_EQ(line, "{\"text\":\"\\u00e4\",\"type\":\"stdout\"}\n");
}

TEST(E2bCells, ResultsByTheirNames) {
  json::object bundle = parse_json(R"({"is_main":true,"text/plain":"'a'","image/png":"QQ==",
      "application/x-mine":1,"application/vnd.agent-sandbox.data+json":{"c":{"0":1,"1":2}}})")
                            ->as_object();
  EXPECT_EQ(json::value(result_fields(bundle)),
            *parse_json(R"({"is_main_result":true,"text":"a","png":"QQ==","data":{"c":[1,2]},
                           "extra":{"application/x-mine":1}})"));
  EXPECT_EQ(without_quotes("\"a'"), "\"a'");
  EXPECT_EQ(without_quotes("''a''"), "'a'");
  EXPECT_EQ(without_quotes("'"), "'");
}

std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST(E2bInflate, AsItComes) {
  std::string text(300'000, 'a');
  std::string packed = gzip(text) + gzip("b");
  for (std::size_t step : {1UL, 7UL, packed.size()}) {
    Inflater inflater;
    std::string out;
    for (std::size_t at = 0; at < packed.size(); at += step) {
      inflater.feed(std::string_view(packed).substr(at, step));
      for (;;) {
        auto made = inflater.next();
        ASSERT_TRUE(made);
        if (made->empty()) break;
        out += *made;
      }
    }
    EXPECT_EQ(out, text + "b");
    EXPECT_TRUE(inflater.is_complete());
  }
  Inflater bad;
  bad.feed("no gzip at all");
  EXPECT_FALSE(bad.next());
  Inflater cut;
  cut.feed(std::string_view(packed).substr(0, 20));
  EXPECT_TRUE(cut.next());
  EXPECT_FALSE(cut.is_complete());
}

RequestHead head_with(std::initializer_list<std::pair<const char*, std::string>> headers) {
  RequestHead head;
  head.method = "GET";
  head.path = head.target = "/";
  for (const auto& [name, value] : headers) head.headers.add(name, value);
  return head;
}

TEST(E2bDispatch, ByHeadersByHostBySignature) {
  std::string id(kSessionIdLength, 'a');
  auto target =
      data_target(head_with({{"E2b-Sandbox-Id", id}, {"E2b-Sandbox-Port", "49983"}}), "localhost");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->session, id);
  EXPECT_EQ(target->port, kEnvdPort);
  EXPECT_TRUE(target->problem.empty());
  EXPECT_FALSE(data_target(head_with({{"E2b-Sandbox-Id", id}}), "localhost")->problem.empty());
  EXPECT_FALSE(data_target(head_with({{"E2b-Sandbox-Port", "1"}}), "localhost")->problem.empty());
  auto bad = head_with({{"E2b-Sandbox-Id", id}, {"E2b-Sandbox-Port", "99999"}});
  EXPECT_FALSE(data_target(bad, "localhost")->problem.empty());
  auto host = data_target(head_with({{"Host", "3000-" + id + ".localhost:8000"}}), "localhost");
  ASSERT_TRUE(host);
  EXPECT_TRUE(host->by_host);
  EXPECT_EQ(host->port, 3000);
  auto token = data_target(head_with({{"X-Access-Token", "t"}}), "localhost");
  ASSERT_TRUE(token);
  EXPECT_EQ(token->token, "t");
  EXPECT_EQ(token->port, kEnvdPort);
  RequestHead file = head_with({{"Host", "localhost"}});
  EXPECT_FALSE(data_target(file, "localhost"));
  file.path = "/files";
  file.query = "path=a";
  EXPECT_FALSE(data_target(file, "localhost"));
  file.query = "path=a&signature=v1_x";
  ASSERT_TRUE(data_target(file, "localhost"));
  EXPECT_TRUE(data_target(file, "localhost")->request);
}

}  // namespace
}  // namespace asr
