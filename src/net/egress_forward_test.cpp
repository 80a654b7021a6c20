// Requests for http://…, each judged by itself; servers that are not to be trusted.
#include "net/egress_fixture.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class EgressForward : public EgressFixture {};

TEST_F(EgressForward, APlainRequestGoesThrough) {
  EchoServer server;
  put("web.example", server.port());
  start({rule("web.example")});
  Peer peer = program();
  std::string answer =
      ask(peer, "http://Web.Example/a/b?c=d", "web.example",
          "X-Own: 1\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\n"
          "Proxy-Anything: y\r\nConnection: X-Hop\r\nX-Hop: 2\r\nTE: trailers\r\n");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200"));
  ASSERT_EQ(server.requests().size(), 1U);
  std::string seen = server.requests()[0];
  EXPECT_THAT(seen, testing::StartsWith("GET /a/b?c=d HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("Host: web.example\r\n"));
  EXPECT_THAT(seen, HasSubstr("X-Own: 1\r\n"));
  for (const char* gone : {"Proxy-", "X-Hop", "TE:"}) EXPECT_THAT(seen, Not(HasSubstr(gone)));
  EgressAttempt attempt = last_attempt(1);
  EXPECT_TRUE(attempt.allowed);
  EXPECT_EQ(attempt.method, "GET");
  EXPECT_EQ(attempt.path, "/a/b");
  EXPECT_EQ(attempt.port, 80);
  EXPECT_GT(attempt.bytes_up, 0U);
  EXPECT_GT(attempt.bytes_down, 0U);
}

TEST_F(EgressForward, EachRequestIsJudgedAnew) {
  EchoServer server;
  put("web.example", server.port());
  put("evil.example", server.port());
  start({rule("web.example")});
  Peer peer = program();
  EXPECT_THAT(ask(peer, "http://web.example/1", "web.example"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(ask(peer, "http://evil.example/2", "evil.example"), HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(ask(peer, "http://web.example/3", "web.example"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(ask(peer, "http://web.example:8080/4", "web.example:8080"),
              HasSubstr("HTTP/1.1 403"));
  // Two at once.
  peer.send(
      "GET http://web.example/5 HTTP/1.1\r\nHost: web.example\r\n\r\n"
      "GET http://evil.example/6 HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_THAT(peer.read_answer(), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(peer.read_answer(), HasSubstr("HTTP/1.1 403"));
  EXPECT_EQ(server.requests().size(), 3U);
  EXPECT_EQ(attempts(6).size(), 6U);
}

TEST_F(EgressForward, TheHostMustAgree) {
  EchoServer server;
  put("web.example", server.port());
  start({rule("web.example"), rule("other.example")});
  for (const char* host : {"evil.example", "other.example", "web.example:8080", "web.example.evil",
                           "", "web_example", "web.example, other.example"}) {
    Peer peer = program();
    EXPECT_THAT(ask(peer, "http://web.example/", host), HasSubstr("HTTP/1.1 400")) << host;
  }
  for (const char* host : {"web.example", "WEB.example", "web.example:80", "web.example."}) {
    Peer peer = program();
    EXPECT_THAT(ask(peer, "http://web.example/", host), HasSubstr("HTTP/1.1 200")) << host;
  }
}

// Heads that two readers could take differently reach nobody.
TEST_F(EgressForward, StrangeHeadsAreRefused) {
  EchoServer server;
  put("web.example", server.port());
  start({rule("web.example")});
  std::string get = "GET http://web.example/ HTTP/1.1\r\n";
  std::string post = "POST http://web.example/ HTTP/1.1\r\nHost: web.example\r\n";
  for (const std::string& raw :
       {get + "\r\n",
        get + "Host: web.example\r\nHost: evil.example\r\n\r\n",
        get + "Host : web.example\r\n\r\n",
        get + "Host: web.example\r\n folded\r\n\r\n",
        get + "Host: web.example\nX: y\r\n\r\n",
        post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        post + "Content-Length: +1\r\n\r\nx",
        std::string("GET  http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET http://web.example/ HTTP/2.0\r\nHost: web.example\r\n\r\n"),
        std::string(
            "CONNECT web.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
        std::string("GET http://u:p@web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET https://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET http://web.example:0/ HTTP/1.1\r\nHost: web.example:0\r\n\r\n"),
        std::string("GET http:///x HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET http://web%2eexample/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET http://web.example\\@evil.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET http://web.example#@evil.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n"),
        std::string("GET web.example HTTP/1.1\r\nHost: web.example\r\n\r\n")}) {
    Peer peer = program();
    peer.send(raw);
    EXPECT_THAT(peer.read_until("\r\n\r\n"), HasSubstr("HTTP/1.1 400")) << raw;
  }
  Peer large = program();
  large.send(get + "Host: web.example\r\nX: " + std::string(100000, 'x'));
  EXPECT_THAT(large.read_until("\r\n\r\n"), HasSubstr("HTTP/1.1 431"));
  EXPECT_EQ(server.requests().size(), 0U);
}

TEST_F(EgressForward, WhoTakesItForAServerIsTold) {
  start({});
  for (const char* target : {"/", "/index.html", "/http://web.example/", "*"}) {
    Peer peer = program();
    std::string answer = ask(peer, target, "127.0.0.1:3128");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 400")) << target;
    EXPECT_THAT(answer, HasSubstr("this is a proxy"));
  }
}

TEST_F(EgressForward, BodiesStream) {
  std::atomic<std::size_t> got{0};
  Server server([&](Peer& peer) {
    std::string head = peer.read_until("\r\n\r\n");
    if (head.find("chunked") != std::string::npos) {
      got = peer.read_until("0\r\n\r\n").size();
    } else {
      std::size_t size = 8 << 20;
      while (got < size) got += peer.read_some().size();
    }
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::string block(65536, 'y');
    for (int i = 0; i < 64; ++i) peer.send("10000\r\n" + block + "\r\n");
    peer.send("0\r\n\r\n");
  });
  put("web.example", server.port());
  start({rule("web.example")});
  Peer peer = program();
  std::string body(8 << 20, 'x');
  std::thread sending([&] {
    peer.send("POST http://web.example/ HTTP/1.1\r\nHost: web.example\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
    peer.send(body);
  });
  std::string answer = peer.read_answer();
  sending.join();
  EXPECT_EQ(got, body.size());
  EXPECT_EQ(std::count(answer.begin(), answer.end(), 'y'), 64 * 65536);
  got = 0;
  peer.send(
      "POST http://web.example/ HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_THAT(peer.read_until("\r\n\r\n"), HasSubstr("100 Continue"));
  peer.send("5\r\nhello\r\n0\r\n\r\n");
  EXPECT_THAT(peer.read_answer(), HasSubstr("HTTP/1.1 200"));
  EXPECT_EQ(got, 15U);
}

// A server that is not to be trusted harms nobody but itself.
TEST_F(EgressForward, HostileServers) {
  limits_.idle_time = 2s;
  limits_.answer_time = 2s;
  struct Case {
    const char* name;
    std::function<void(Peer&)> act;
    const char* expected;  // "" : the answer just ends
  };
  std::vector<Case> cases{
      {"garbage", [](Peer& p) { p.send("hello\r\n\r\n"); }, "502"},
      {"nothing", [](Peer&) {}, "502"},
      {"two lengths",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab");
       },
       "502"},
      {"length and chunks",
       [](Peer& p) {
         p.send(
             "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
       },
       "502"},
      {"endless header",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\nX: ");
         std::string block(65536, 'x');
         for (int i = 0; i < 1000 && p.send(block); ++i) {
         }
       },
       "502"},
      {"endless headers",
       [](Peer& p) {
         p.send("HTTP/1.1 200 OK\r\n");
         for (int i = 0; i < 100000 && p.send("X: y\r\n"); ++i) {
         }
       },
       "502"},
      {"endless interim answers",
       [](Peer& p) {
         for (int i = 0; i < 100000 && p.send("HTTP/1.1 100 Continue\r\n\r\n"); ++i) {
         }
       },
       "502"},
      {"an upgrade nobody asked for",
       [](Peer& p) { p.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"); }, "502"},
      {"silence", [](Peer& p) { p.read_to_end(); }, "504"},
      {"half a body", [](Peer& p) { p.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"); },
       "200"},
      {"bad chunks",
       [](Peer& p) { p.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); },
       "200"},
      {"no body, but bytes",
       [](Peer& p) { p.send("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"); }, "204"},
      {"not modified",
       [](Peer& p) { p.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"); }, "304"},
  };
  std::vector<std::unique_ptr<Server>> servers;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    servers.push_back(std::make_unique<Server>([act = cases[i].act](Peer& peer) {
      peer.read_until("\r\n\r\n");
      act(peer);
    }));
    put("s" + std::to_string(i) + ".hostile.example", servers.back()->port());
  }
  start({rule("*.hostile.example")});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::string host = "s" + std::to_string(i) + ".hostile.example";
    Peer peer = program();
    peer.send("GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    std::string head = peer.read_until("\r\n\r\n");
    EXPECT_THAT(head, HasSubstr(std::string("HTTP/1.1 ") + cases[i].expected)) << cases[i].name;
    if (std::string(cases[i].expected) == "200") EXPECT_LT(peer.read_to_end().size(), 100U);
    if (std::string(cases[i].expected) == "204" || std::string(cases[i].expected) == "304") {
      // What came behind is no answer to the next request.
      peer.send("GET http://denied.example/ HTTP/1.1\r\nHost: denied.example\r\n\r\n");
      EXPECT_THAT(peer.read_answer(), testing::StartsWith("HTTP/1.1 403")) << cases[i].name;
    }
  }
}

TEST_F(EgressForward, UpgradedConnectionsAreCutToo) {
  Server server([](Peer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    for (std::string text = peer.read_some(); !text.empty(); text = peer.read_some())
      peer.send(text);
  });
  put("ws.example", server.port());
  start({rule("ws.example")});
  Peer peer = program();
  peer.send(
      "GET http://ws.example/ HTTP/1.1\r\nHost: ws.example\r\nConnection: Upgrade\r\nUpgrade: "
      "echo\r\n\r\n");
  EXPECT_THAT(peer.read_until("\r\n\r\n"), HasSubstr(" 101 "));
  peer.send("ping");
  EXPECT_EQ(peer.read_some(), "ping");
  replace({});
  EXPECT_TRUE(peer.is_at_end());
  EgressAttempt attempt = last_attempt(1);
  EXPECT_THAT(attempt.reason, HasSubstr("list of hosts has changed"));
  EXPECT_GT(attempt.bytes_up, 4U);
}

TEST_F(EgressForward, AClientThatLeavesCostsNothing) {
  Server server([](Peer& peer) {
    peer.read_until("\r\n\r\n");
    peer.send("HTTP/1.1 200 OK\r\n\r\n");
    std::string block(65536, 'x');
    while (peer.send(block)) {
    }
  });
  put("web.example", server.port());
  start({rule("web.example")});
  {
    Peer peer = program();
    peer.send("GET http://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n");
    peer.read_some();
  }
  for (int i = 0; i < 300 && counts().connections > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(counts().connections, 0U);
  EXPECT_EQ(attempts(1).size(), 1U);
}

}  // namespace
}  // namespace asr::test
