// Credentials that programs use and never see.
#include "net/egress_fixture.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class EgressCredentials : public EgressFixture {
 protected:
  void expect_no_secret() {
    for (const EgressAttempt& each : attempts(1))
      EXPECT_THAT(each.reason + each.path + each.host + each.method, Not(HasSubstr("secret")));
  }
};

TEST_F(EgressCredentials, AreAddedInsideTls) {
  EchoServer server(certificate_for("api.example"));
  put("api.example", server.port());
  start({with_key(rule("api.example"))});
  std::string answer = ask_inside("api.example", "/v1/x?y", "authorization: mine\r\nX-Own: 1\r\n");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 200"));
  ASSERT_EQ(server.requests().size(), 1U);
  std::string seen = server.requests()[0];
  EXPECT_THAT(seen, testing::StartsWith("GET /v1/x?y HTTP/1.1\r\n"));
  EXPECT_THAT(seen, HasSubstr("Authorization: Bearer top-secret\r\n"));
  EXPECT_THAT(seen, HasSubstr("X-Own: 1\r\n"));
  EXPECT_THAT(seen, HasSubstr("Host: api.example\r\n"));
  EXPECT_THAT(seen, Not(HasSubstr("mine"))) << "instead of the program's own";
  EgressAttempt attempt = last_attempt(1);
  EXPECT_TRUE(attempt.allowed);
  EXPECT_EQ(attempt.method, "GET") << "the request is told of, not the tunnel around it";
  EXPECT_EQ(attempt.path, "/v1/x");
  expect_no_secret();
}

TEST_F(EgressCredentials, PlainRequestsBecomeTls) {
  EchoServer server(certificate_for("api.example"));
  put("api.example", server.port());
  start({with_key(rule("api.example"))});
  Peer peer = program();
  EXPECT_THAT(ask(peer, "http://api.example/v1", "api.example"), HasSubstr("HTTP/1.1 200"));
  ASSERT_EQ(server.requests().size(), 1U);
  EXPECT_THAT(server.requests()[0], HasSubstr("Authorization: Bearer top-secret\r\n"));
  EXPECT_THAT(server.requests()[0], HasSubstr("Host: api.example\r\n"));
  EXPECT_EQ(last_attempt(1).port, 443);
}

TEST_F(EgressCredentials, SeveralRequestsOnOneConnection) {
  EchoServer server(certificate_for("api.example"));
  put("api.example", server.port());
  start({with_key(rule("api.example"))});
  Peer peer = program();
  ask_tunnel(peer, "api.example:443");
  ASSERT_EQ(peer.start_tls({"api.example", session_certificate(), "", "\x02h2\x08http/1.1"}), "");
  EXPECT_EQ(peer.protocol(), "http/1.1");
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(ask(peer, "/" + std::to_string(i), "api.example"), HasSubstr("HTTP/1.1 200"));
  // Another host inside is another host.
  EXPECT_THAT(ask(peer, "/4", "other.example"), HasSubstr("HTTP/1.1 400"));
  EXPECT_THAT(ask(peer, "/5", "api.example:8443"), HasSubstr("HTTP/1.1 400"));
  EXPECT_EQ(server.requests().size(), 3U);
  replace({});
  EXPECT_TRUE(peer.is_at_end());
}

TEST_F(EgressCredentials, OnlyHttpIsSpokenInside) {
  start({with_key(rule("api.example"))});
  Peer two = program();
  ask_tunnel(two, "api.example:443");
  EXPECT_NE(two.start_tls({"api.example", session_certificate(), "", "\x02h2"}), "");
  Peer other = program();
  ask_tunnel(other, "api.example:443");
  EXPECT_NE(other.start_tls({"evil.example", session_certificate(), "", ""}), "");
  Peer none = program();
  ask_tunnel(none, "api.example:443");
  none.send("GET / HTTP/1.1\r\nHost: api.example\r\n\r\n");
  EXPECT_TRUE(none.is_at_end());
  Peer distrusting = program();
  ask_tunnel(distrusting, "api.example:443");
  EXPECT_THAT(distrusting.start_tls({"api.example", world_certificate(), "", ""}),
              HasSubstr("certificate"));
  distrusting.reset();
  for (const EgressAttempt& attempt : attempts(4)) EXPECT_FALSE(attempt.allowed);
  EXPECT_EQ(attempts(4).size(), 4U);
}

TEST_F(EgressCredentials, OthersAreNeverOpened) {
  EchoServer server(certificate_for("other.example"));
  put("other.example", server.port());
  start({with_key(rule("api.example")), rule("other.example")});
  Peer peer = program();
  ask_tunnel(peer, "other.example:443");
  EXPECT_EQ(peer.start_tls({"other.example", world_certificate(), "", ""}), "");
  EXPECT_THAT(ask(peer, "/", "other.example"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(server.requests()[0], Not(HasSubstr("secret")));
}

TEST_F(EgressCredentials, BelongToAPath) {
  EchoServer server(certificate_for("api.example"));
  put("api.example", server.port());
  EgressRule both = with_key(rule("api.example"), "/v1");
  both.credentials.push_back({"Authorization", "Bearer narrow", "/v1/admin"});
  both.credentials.push_back({"X-Everywhere", "yes", "/"});
  start({both});
  auto sent = [&](const std::string& path) {
    std::size_t before = server.requests().size();
    std::string answer = ask_inside("api.example", path, "Authorization: mine\r\n");
    auto all = server.requests();
    return all.size() > before ? all.back() : answer;
  };
  EXPECT_THAT(sent("/v1/x"), HasSubstr("Authorization: Bearer top-secret"));
  EXPECT_THAT(sent("/v1/admin/y"), HasSubstr("Authorization: Bearer narrow"));
  EXPECT_THAT(sent("/v10"), HasSubstr("Authorization: mine"));
  EXPECT_THAT(sent("/"), HasSubstr("Authorization: mine"));
  EXPECT_THAT(sent("/"), HasSubstr("X-Everywhere: yes"));
  for (const char* unclear :
       {"/v1/../x", "/v1/%2e%2e/x", "/v1/..%2fx", "/v1/..;/x", "/v1/%252e%252e/"})
    EXPECT_THAT(sent(unclear), HasSubstr("HTTP/1.1 400")) << unclear;
}

TEST_F(EgressCredentials, RedirectsAreNotFollowed) {
  Server redirecting(
      [](Peer& peer) {
        peer.read_until("\r\n\r\n");
        peer.send(
            "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n");
      },
      certificate_for("api.example"));
  EchoServer evil(certificate_for("evil.example"));
  put("api.example", redirecting.port());
  put("evil.example", evil.port());
  start({with_key(rule("api.example")), rule("evil.example")});
  EXPECT_THAT(ask_inside("api.example", "/"), HasSubstr("HTTP/1.1 302"));
  EXPECT_EQ(evil.accepted(), 0);
}

TEST_F(EgressCredentials, AServerThatRepeatsThemIsMasked) {
  EchoServer server(certificate_for("api.example"), "X-Echo: you sent top-secret\r\n");
  put("api.example", server.port());
  start({with_key(rule("api.example"))});
  std::string answer = ask_inside("api.example", "/");
  std::string head = answer.substr(0, answer.find("\r\n\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Echo: ***"));
  EXPECT_THAT(head, Not(HasSubstr("top-secret")));
  Peer peer = program();
  ask_tunnel(peer, "api.example:443");
  ASSERT_EQ(peer.start_tls({"api.example", session_certificate(), "", ""}), "");
  peer.send("TRACE / HTTP/1.1\r\nHost: api.example\r\n\r\n");
  EXPECT_THAT(peer.read_answer(), HasSubstr("HTTP/1.1 403"));
}

TEST_F(EgressCredentials, ServersMustProveTheirName) {
  EchoServer impostor(certificate_for("other.example"));
  EchoServer plain;
  auto unknown = std::move(*Authority::make());
  EchoServer untrusted(*unknown->server_context(HostName{"untrusted.example", false}));
  put("api.example", impostor.port());
  put("plain.example", plain.port());
  put("untrusted.example", untrusted.port());
  start({with_key(rule("*.example.x")), with_key(rule("api.example")),
         with_key(rule("plain.example")), with_key(rule("untrusted.example"))});
  for (const char* host : {"api.example", "plain.example", "untrusted.example"}) {
    std::string answer = ask_inside(host, "/");
    EXPECT_THAT(answer, HasSubstr("HTTP/1.1 50")) << host;
    EXPECT_THAT(answer, Not(HasSubstr("secret")));
  }
  EXPECT_EQ(impostor.requests().size() + plain.requests().size() + untrusted.requests().size(), 0U);
  expect_no_secret();
}

TEST_F(EgressCredentials, NeverInPlainText) {
  EchoServer plain;
  put("api.example", plain.port());
  start({with_key(rule("api.example", {80, 8443}))});
  Peer peer = program();
  EXPECT_THAT(ask(peer, "http://api.example/", "api.example"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(plain.requests().at(0), Not(HasSubstr("secret")));
  Peer tunnel = program();
  EXPECT_THAT(ask_tunnel(tunnel, "api.example:80"), HasSubstr(" 200 "));
  EXPECT_THAT(ask(tunnel, "/", "api.example"), Not(HasSubstr("secret")));
}

TEST_F(EgressCredentials, EachSessionHasAnAuthorityOfItsOwn) {
  start({with_key(rule("api.example"))});
  auto other = other_proxy(EgressPolicy());
  ASSERT_TRUE(other);
  Peer peer = program();
  ask_tunnel(peer, "api.example:443");
  EXPECT_NE(peer.start_tls({"api.example", (*other)->certificate(), "", ""}), "");
  on_thread([&] { other->reset(); });
}

}  // namespace
}  // namespace asr::test
