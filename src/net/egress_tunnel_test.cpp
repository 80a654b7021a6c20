// CONNECT, as programs use it and as they misuse it.
#include "net/egress_fixture.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class EgressTunnel : public EgressFixture {};

TEST_F(EgressTunnel, NothingIsAllowedByDefault) {
  start({});
  Peer peer = program();
  peer.send("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
  std::string answer = peer.read_answer();
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 403"));
  for (const char* part : {"\"code\":\"denied\"", "\"fault\":\"policy\"",
                           "\"message\":", "\"hint\":", "\"trace_id\":", "example.com"})
    EXPECT_THAT(answer, HasSubstr(part));
  EgressAttempt attempt = last_attempt(1);
  EXPECT_FALSE(attempt.allowed);
  EXPECT_EQ(attempt.host, "example.com");
  EXPECT_EQ(attempt.port, 443);
  EXPECT_EQ(attempt.method, "CONNECT");
  EXPECT_THAT(attempt.reason, HasSubstr("not on the session's list"));
  EXPECT_TRUE(asked_names().empty()) << "what is not allowed is not looked up";
}

TEST_F(EgressTunnel, TlsGoesThroughUntouched) {
  EchoServer server(certificate_for("api.example"));
  put("api.example", server.port());
  start({rule("api.example")});
  Peer peer = program();
  EXPECT_THAT(ask_tunnel(peer, "API.example.:443"), HasSubstr(" 200 "));
  EXPECT_EQ(peer.start_tls({"api.example", world_certificate(), "", ""}), "")
      << "the server's own certificate, not the session's";
  EXPECT_THAT(ask(peer, "/hello", "api.example"), HasSubstr("GET /hello"));
  peer.reset();
  EgressAttempt attempt = last_attempt(1);
  EXPECT_TRUE(attempt.allowed) << attempt.reason;
  EXPECT_EQ(attempt.reason, "");
  EXPECT_EQ(attempt.host, "api.example");
  EXPECT_GT(attempt.bytes_up, 300U);
  EXPECT_GT(attempt.bytes_down, 500U);
  EXPECT_EQ(counts().bytes_up, attempt.bytes_up);
}

// The first words in the smallest pieces, sent together with the request for the tunnel or after.
TEST_F(EgressTunnel, TheFirstWordsMayComeInPieces) {
  Server server([](Peer& peer) { peer.send(std::to_string(peer.read_some().size() > 0)); });
  put("api.example", server.port());
  start({rule("api.example")});
  std::string hello = client_hello("api.example");
  Peer slow = program();
  ask_tunnel(slow, "api.example:443");
  for (char c : hello) slow.send(std::string_view(&c, 1));
  EXPECT_EQ(slow.read_some(), "1");
  Peer eager = program();
  eager.send("CONNECT api.example:443 HTTP/1.1\r\nHost: x\r\n\r\n" + hello);
  EXPECT_THAT(eager.read_until("\r\n\r\n"), HasSubstr(" 200 "));
  EXPECT_EQ(eager.read_some(), "1");
}

TEST_F(EgressTunnel, OtherNamesAreCutOff) {
  Server server([](Peer& peer) { peer.send("got:" + peer.read_some()); });
  put("api.example", server.port());
  start({rule("api.example"), rule("other.example")});
  auto hello = client_hello("api.example");
  struct Case {
    std::string bytes;
    const char* reason;
  };
  std::size_t told = 0;
  for (const Case& each : {Case{client_hello("evil.example"), "another host: evil.example"},
                           Case{client_hello("other.example"), "another host"},
                           Case{client_hello("api.example.evil"), "another host"},
                           Case{client_hello(""), "names no host"},
                           Case{"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "not TLS"},
                           Case{"CONNECT evil.example:443 HTTP/1.1\r\n\r\n", "not TLS"},
                           Case{"SSH-2.0-client\r\n", "not TLS"},
                           Case{std::string("\x16\x03\x01\x00\x00", 5), "malformed"},
                           Case{std::string(1, '\x16') + "x", "malformed"}}) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, "api.example:443"), HasSubstr(" 200 "));
    peer.send(each.bytes);
    EXPECT_EQ(peer.read_to_end(), "") << each.reason;
    EgressAttempt attempt = last_attempt(++told);
    EXPECT_FALSE(attempt.allowed) << each.reason;
    EXPECT_THAT(attempt.reason, HasSubstr(each.reason));
    EXPECT_EQ(attempt.bytes_up, 0U);
  }
  // A part of the first words, and then nothing.
  Peer half = program();
  ask_tunnel(half, "api.example:443");
  half.send(hello.substr(0, 100));
  half.shut_down();
  EXPECT_EQ(half.read_to_end(), "");
  EXPECT_THAT(last_attempt(++told).reason, HasSubstr("ended before"));
}

TEST_F(EgressTunnel, PlainProtocolsOnPortsThatAreListed) {
  Server server([](Peer& peer) {
    peer.send("SSH-2.0-server\r\n");  // It speaks first.
    peer.send("got " + peer.read_until("\n"));
  });
  put("git.example", server.port());
  start({rule("git.example", {22})});
  Peer peer = program();
  EXPECT_THAT(ask_tunnel(peer, "git.example:22"), HasSubstr(" 200 "));
  EXPECT_EQ(peer.read_until("\n"), "SSH-2.0-server\r\n");
  peer.send("SSH-2.0-client\r\n");
  EXPECT_EQ(peer.read_to_end(), "got SSH-2.0-client\r\n");
  // TLS is held to its word there, too.
  Peer other = program();
  ask_tunnel(other, "git.example:22");
  other.read_until("\n");
  other.send(client_hello("evil.example"));
  EXPECT_EQ(other.read_to_end(), "");
}

TEST_F(EgressTunnel, OnlyListedPorts) {
  EchoServer server;
  put("api.example", server.port());
  start({rule("api.example")});
  for (const char* target : {"api.example:22", "api.example:25", "api.example:6379",
                             "api.example:8443", "api.example:65535"}) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, target), HasSubstr(" 403 ")) << target;
  }
  for (const char* target :
       {"api.example:0", "api.example:443:80", "api.example", "api.example:", "api.example:65536",
        ":443", "api.example:443/", "u@api.example:443", "api_x.example:443", "api.example%00:443",
        "api..example:443", "http://api.example:443"}) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, target), HasSubstr(" 400 ")) << target;
  }
  EXPECT_EQ(server.accepted(), 0);
}

TEST_F(EgressTunnel, AddressesMustBeListed) {
  Server server([](Peer& peer) { peer.send(peer.read_some()); });
  put("api.example", server.port());
  start({rule("api.example"), rule("127.0.0.2", {server.port()})});
  std::string port = ":" + std::to_string(server.port());
  for (const char* host : {"127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1",
                           "[::ffff:127.0.0.1]", "[::1]", "0"}) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, host + port), HasSubstr(" 403 ")) << host;
    Peer usual = program();
    EXPECT_THAT(ask_tunnel(usual, std::string(host) + ":443"), HasSubstr(" 403 ")) << host;
  }
  EXPECT_EQ(server.accepted(), 0);
  for (const char* host : {"127.0.0.3", "127.0.0.02"}) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, host + port),
                HasSubstr(std::string(host) == "127.0.0.3" ? " 403 " : ""))
        << host;
  }
}

TEST_F(EgressTunnel, NamesThatLeadInsideAreRefused) {
  EchoServer server;
  EgressRule plain = rule("api.example");
  plain.reach = Reach::public_only;
  for (const char* address : {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1",
                              "::ffff:127.0.0.1", "192.168.1.1", "0.0.0.0"}) {
    put(std::string("a") + std::to_string(std::hash<std::string>()(address)) + ".example",
        server.port(), address);
  }
  put("api.example", server.port(), "93.184.216.34");
  put("api.example", server.port(), "127.0.0.1");
  EgressRule all = rule("*.x.example");
  all.reach = Reach::public_only;
  start({plain}, EgressScope::any_public);
  Peer peer = program();
  EXPECT_THAT(ask_tunnel(peer, "api.example:443"), HasSubstr(" 403 ")) << "one bad address";
  for (const char* address : {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1",
                              "::ffff:127.0.0.1", "192.168.1.1", "0.0.0.0"}) {
    std::string host =
        std::string("a") + std::to_string(std::hash<std::string>()(address)) + ".example";
    Peer other = program();
    EXPECT_THAT(ask_tunnel(other, host + ":443"), HasSubstr(" 403 ")) << address;
    Peer literal = program();
    std::string text = std::string(address).find(':') == std::string::npos
                           ? address
                           : "[" + std::string(address) + "]";
    EXPECT_THAT(ask_tunnel(literal, text + ":443"), HasSubstr(" 403 ")) << address;
  }
  EXPECT_EQ(server.accepted(), 0);
}

TEST_F(EgressTunnel, OnlyAllowedNamesAreLookedUp) {
  start({rule("*.example.org")});
  for (const char* host : {"secret-data.evil.com", "example.org", "x.example.org",
                           "evil-example.org", "y.x.example.org", "x.example.org"}) {
    Peer peer = program();
    ask_tunnel(peer, std::string(host) + ":443");
  }
  EXPECT_THAT(asked_names(),
              testing::ElementsAre("x.example.org", "y.x.example.org", "x.example.org"));
}

TEST_F(EgressTunnel, NamesPerSecondAreBounded) {
  limits_.names_per_second = 2;
  start({rule("*.example.org")});
  std::vector<Peer> peers;
  for (int i = 0; i < 40; ++i) {
    peers.push_back(program());
    std::string name = "n" + std::to_string(i) + ".example.org:443";
    peers.back().send("CONNECT " + name + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  int refused = 0;
  for (Peer& peer : peers)
    refused += peer.read_until("\r\n\r\n").find(" 429 ") != std::string::npos;
  EXPECT_GE(refused, 25) << "those for whom there was no turn in two seconds";
  EXPECT_LE(asked_names().size(), 15U);
}

TEST_F(EgressTunnel, ANameIsLookedUpOnceForMany) {
  Server server([](Peer& peer) { peer.read_to_end(); });
  put("many.example", server.port());
  limits_.lookups = 1;
  limits_.names_per_second = 1;
  start({rule("many.example", {9000})});
  std::vector<Peer> peers;
  for (int i = 0; i < 50; ++i) {
    peers.push_back(program());
    peers.back().send("CONNECT many.example:9000 HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  for (Peer& peer : peers) EXPECT_THAT(peer.read_until("\r\n\r\n"), HasSubstr(" 200 "));
  EXPECT_EQ(asked_names().size(), 1U);
}

// A list that changes while a name is looked up counts for that one, too.
TEST_F(EgressTunnel, AListThatChangesMeanwhileCounts) {
  Server server([](Peer& peer) { peer.read_to_end(); });
  put("slow.example", server.port());
  delay_ = 500ms;
  start({rule("slow.example", {9000})});
  Peer peer = program();
  peer.send("CONNECT slow.example:9000 HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(100ms);
  EgressRule narrower = rule("slow.example", {9000});
  narrower.reach = Reach::public_only;
  replace({narrower});
  EXPECT_THAT(peer.read_until("\r\n\r\n"), HasSubstr(" 403 "));
  EXPECT_EQ(server.accepted(), 0);
}

TEST_F(EgressTunnel, WhoCannotBeReachedIsNotDenied) {
  std::uint16_t nobody;
  {
    EchoServer server;
    nobody = server.port();
  }
  put("down.example", nobody);
  start({rule("down.example"), rule("unknown.example")});
  Peer down = program();
  EXPECT_THAT(ask_tunnel(down, "down.example:443"), HasSubstr(" 502 "));
  EgressAttempt attempt = last_attempt(1);
  EXPECT_TRUE(attempt.allowed);
  EXPECT_NE(attempt.reason, "");
  Peer unknown = program();
  EXPECT_THAT(ask_tunnel(unknown, "unknown.example:443"), HasSubstr(" 502 "));
}

TEST_F(EgressTunnel, EndsOneDirectionAtATime) {
  Server server([](Peer& peer) {
    std::string all = peer.read_to_end();
    peer.send("after the end: " + std::to_string(all.size()));
  });
  put("raw.example", server.port());
  start({rule("raw.example", {9000})});
  Peer peer = program();
  ask_tunnel(peer, "raw.example:9000");
  std::string data(3 << 20, 'x');
  EXPECT_TRUE(peer.send(data));
  peer.shut_down();
  EXPECT_EQ(peer.read_to_end(), "after the end: " + std::to_string(data.size()));
  EgressAttempt attempt = last_attempt(1);
  EXPECT_EQ(attempt.bytes_up, data.size());
  EXPECT_EQ(attempt.reason, "");
}

TEST_F(EgressTunnel, IdleAndSlowOnesEnd) {
  limits_.idle_time = 1s;
  limits_.hello_time = 1s;
  limits_.head_time = 1s;
  limits_.half_time = 1s;
  Server server([](Peer& peer) { peer.read_to_end(); });
  put("raw.example", server.port());
  start({rule("raw.example", {9000, 443})});
  Peer idle = program();
  ask_tunnel(idle, "raw.example:9000");
  Peer silent = program();
  ask_tunnel(silent, "raw.example:443");
  Peer dripping = program();
  ask_tunnel(dripping, "raw.example:443");
  std::string hello = client_hello("raw.example");
  auto until = std::chrono::steady_clock::now() + 1500ms;
  for (char c : hello) {
    if (std::chrono::steady_clock::now() > until) break;
    dripping.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_TRUE(dripping.is_at_end());
  auto all = attempts(3);
  ASSERT_EQ(all.size(), 3U);
  int denied = 0;
  for (const EgressAttempt& attempt : all) denied += !attempt.allowed;
  EXPECT_EQ(denied, 2);
  Peer head = program();
  head.send("CONNECT raw.exa");
  EXPECT_THAT(head.read_to_end(), HasSubstr(" 408 "));
}

TEST_F(EgressTunnel, ANewListCutsWhatItDoesNotAllow) {
  Server server([](Peer& peer) {
    for (std::string text = peer.read_some(); !text.empty(); text = peer.read_some())
      peer.send(text);
  });
  for (const char* host : {"one.example", "two.example", "three.example"}) put(host, server.port());
  start({rule("one.example", {9000}), rule("two.example", {9000}), rule("three.example", {9000})});
  Peer one = program();
  Peer two = program();
  Peer three = program();
  for (auto [peer, host] :
       {std::pair{&one, "one.example:9000"}, std::pair{&two, "two.example:9000"},
        std::pair{&three, "three.example:9000"}}) {
    ask_tunnel(*peer, host);
    peer->send("ping");
    EXPECT_EQ(peer->read_some(), "ping");
  }
  EgressRule no_longer_inside = rule("three.example", {9000});
  no_longer_inside.reach = Reach::public_only;
  replace({rule("two.example", {9000}), no_longer_inside});
  EXPECT_TRUE(one.is_at_end());
  EXPECT_TRUE(three.is_at_end());
  two.send("pong");
  EXPECT_EQ(two.read_some(), "pong");
  EXPECT_THAT(last_attempt(2).reason, HasSubstr("list of hosts has changed"));
  Peer again = program();
  EXPECT_THAT(ask_tunnel(again, "one.example:9000"), HasSubstr(" 403 "));
}

// A list that comes and goes a thousand times never lets the wrong one through.
TEST_F(EgressTunnel, SwappingListsNeverOpensMore) {
  Server server([](Peer& peer) { peer.read_to_end(); });
  put("good.example", server.port());
  put("bad.example", server.port());
  start({rule("good.example")});
  std::atomic<bool> over{false};
  std::thread swapping([&] {
    for (int i = 0; i < 1000; ++i) {
      replace(i % 2 ? std::vector<EgressRule>{rule("good.example")} : std::vector<EgressRule>{});
      EXPECT_FALSE(EgressPolicy::make({rule("not a host")}))
          << "and what is invalid replaces nothing";
    }
    over = true;
  });
  int tried = 0;
  while (!over) {
    Peer peer = program();
    EXPECT_THAT(ask_tunnel(peer, "bad.example:443"), HasSubstr(" 403 "));
    ++tried;
  }
  swapping.join();
  EXPECT_GT(tried, 0);
  EXPECT_EQ(server.accepted(), 0);
}

TEST_F(EgressTunnel, ConnectionsAreCounted) {
  limits_.connections = 8;
  start({rule("api.example")});
  std::vector<Peer> held;
  for (int i = 0; i < 8; ++i) held.push_back(program());
  Peer over = program();
  EXPECT_TRUE(over.is_at_end()) << "closed at once";
  EXPECT_EQ(counts().connections, 8U);
  held.clear();
  for (int i = 0; i < 200 && counts().connections > 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(counts().connections, 0U);
  Peer again = program();
  EXPECT_THAT(ask_tunnel(again, "evil.example:443"), HasSubstr(" 403 "));
}

TEST_F(EgressTunnel, BytesAreBounded) {
  Server server([](Peer& peer) {
    std::string block(65536, 'x');
    while (peer.send(block)) {
    }
  });
  put("raw.example", server.port());
  start({rule("raw.example", {9000})}, EgressScope::listed, 1 << 20);
  Peer peer = program();
  ask_tunnel(peer, "raw.example:9000");
  EXPECT_LE(peer.read_to_end().size(), (1U << 20) + 65536U);
  EXPECT_THAT(last_attempt(1).reason, HasSubstr("used up its bytes"));
  Peer next = program();
  EXPECT_THAT(ask_tunnel(next, "raw.example:9000"), HasSubstr(" 429 "));
}

TEST_F(EgressTunnel, EverythingEndsWithTheProxy) {
  Server server([](Peer& peer) { peer.read_to_end(); });
  put("raw.example", server.port());
  start({rule("raw.example", {9000})});
  std::vector<Peer> peers;
  for (int i = 0; i < 10; ++i) {
    peers.push_back(program());
    if (i % 2) ask_tunnel(peers.back(), "raw.example:9000");
  }
  stop();
  for (Peer& peer : peers) EXPECT_TRUE(peer.is_at_end());
  auto all = attempts(5);
  EXPECT_EQ(all.size(), 5U) << "told once each, before stop() returned";
  for (const EgressAttempt& attempt : all)
    EXPECT_THAT(attempt.reason, HasSubstr("the session has ended"));
}

TEST_F(EgressTunnel, FullReachesEveryPublicHostAndNoOther) {
  Server server([](Peer& peer) { peer.send("plain " + peer.read_some()); });
  put("any.example", server.port());
  start({rule("any.example", {443})}, EgressScope::any_public);
  Peer listed = program();
  EXPECT_THAT(ask_tunnel(listed, "any.example:443"), HasSubstr(" 200 "));
  Peer other_port = program();
  EXPECT_THAT(ask_tunnel(other_port, "any.example:9000"), HasSubstr(" 403 "))
      << "the wider rule reaches public addresses only";
}

TEST_F(EgressTunnel, TwoSessionsDoNotMeet) {
  Server server([](Peer& peer) { peer.send(peer.read_some()); });
  put("one.example", server.port());
  start({rule("one.example", {9000})});
  auto policy = EgressPolicy::make({rule("two.example", {9000})});
  std::unique_ptr<EgressProxy> other;
  on_thread([&] { other = std::move(*other_proxy(std::move(*policy))); });
  auto [client, served] = tcp_pair();
  on_thread([&, held = &served] { other->serve(std::move(*held)); });
  Peer stranger{std::move(client)};
  EXPECT_THAT(ask_tunnel(stranger, "one.example:9000"), HasSubstr(" 403 "));
  Peer own = program();
  EXPECT_THAT(ask_tunnel(own, "one.example:9000"), HasSubstr(" 200 "));
  on_thread([&] { other.reset(); });
}

}  // namespace
}  // namespace asr::test
