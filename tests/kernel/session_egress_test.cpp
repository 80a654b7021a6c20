// The whole way out: real programs in a real sandbox, the session's door, the proxy, servers. Cases
// N01 to N16 of the catalogue where they need a kernel; the rest is in src/net/egress_*_test.cpp.
#include <fcntl.h>
#include <signal.h>

#include <boost/asio/this_coro.hpp>
#include <map>

#include "base/log.hpp"
#include "kernel_test.hpp"
#include "net/egress_testing.hpp"
#include "session/egress.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class SessionEgressTest : public KernelTest {
 protected:
  SessionEgressTest() {
    DialerSettings settings;
    settings.trust = trust_.path();
    settings.connect_time = 3s;
    settings.resolver = [this](const std::string& host,
                               std::uint16_t) -> Result<std::vector<DialAddress>> {
      std::lock_guard lock(mutex_);
      asked_.push_back(host);
      auto found = world_.find(host);
      if (found == world_.end()) return fail(Errc::not_found, "cannot find " + host);
      return std::vector<DialAddress>{{"127.0.0.1", found->second}};
    };
    dialer_ = std::move(*EgressDialer::make(settings));
  }
  ~SessionEgressTest() override { close_doors(); }

  void put(const std::string& host, std::uint16_t port) { world_[host] = port; }
  auto certificate_for(const std::string& host) {
    return *authority_->server_context(HostName{host, false});
  }
  static EgressRule rule(std::string host, std::vector<std::uint16_t> ports = {443, 80}) {
    EgressRule made;
    made.host = std::move(host);
    made.ports = std::move(ports);
    made.reach = Reach::anywhere;
    return made;
  }

  // A sandbox whose programs trust the session's authority and the world's.
  SandboxPtr proxied_sandbox() {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.network = Network::proxied;
    return sandbox(spec);
  }
  SessionEgress* open_door(const SandboxPtr& box, std::vector<EgressRule> rules,
                           EgressLimits limits = {}) {
    auto policy = EgressPolicy::make(std::move(rules));
    EXPECT_TRUE(policy) << policy.error().what;
    auto open = [&]() -> asio::awaitable<Result<std::unique_ptr<SessionEgress>>> {
      auto executor = co_await asio::this_coro::executor;
      auto report = [this](const EgressAttempt& attempt) {
        std::lock_guard lock(mutex_);
        attempts_.push_back(attempt);
      };
      SessionEgress::Parts parts{executor, *dialer_, quiet_, limits, report, 0};
      co_return SessionEgress::open(std::move(parts), box, std::move(*policy));
    };
    doors_.push_back(must(open()));
    std::string bundle = authority_->certificate() + doors_.back()->certificate();
    must(box->write_file("/workspace/trust.pem", bundle));
    return doors_.back().get();
  }
  template <class F>
  void on_engine(F work) {
    auto run = [&]() -> asio::awaitable<void> {
      work();
      co_return;
    };
    wait(run());
  }
  void close_doors() {
    if (doors_.empty()) return;
    on_engine([&] { doors_.clear(); });
  }
  RunResult trusting(Sandbox& box, std::string script, std::string user = "user") {
    Command command = shell(std::move(script), std::move(user));
    for (auto& [name, value] : trust_variables("/workspace/trust.pem")) command.env[name] = value;
    return must(box.run(std::move(command)));
  }
  std::string python(Sandbox& box, const std::string& script, std::string user = "user") {
    must(box.write_file("/workspace/script.py", script));
    RunResult result = trusting(box, "python3 /workspace/script.py", std::move(user));
    return result.out + result.err;
  }
  std::vector<EgressAttempt> attempts() {
    std::lock_guard lock(mutex_);
    return attempts_;
  }
  std::vector<std::string> asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::unique_ptr<Authority> authority_ = std::move(*Authority::make());
  TrustFile trust_{authority_->certificate()};
  std::mutex mutex_;
  std::map<std::string, std::uint16_t> world_;
  std::vector<std::string> asked_;
  std::vector<EgressAttempt> attempts_;
  asr::Log quiet_{2, LogFormat::text, LogLevel::off};
  std::unique_ptr<EgressDialer> dialer_;
  std::vector<std::unique_ptr<SessionEgress>> doors_;
};

TEST_F(SessionEgressTest, CurlReachesWhatIsListed) {
  EchoServer secure(certificate_for("api.example"));
  EchoServer plain;
  put("api.example", secure.port());
  put("web.example", plain.port());
  auto box = proxied_sandbox();
  open_door(box, {rule("api.example"), rule("web.example")});
  EXPECT_THAT(trusting(*box, "curl -sS https://api.example/one").out, HasSubstr("GET /one"));
  EXPECT_THAT(trusting(*box, "curl -sS http://web.example/two").out, HasSubstr("GET /two"));
  EXPECT_THAT(trusting(*box, "curl -sS -d data http://web.example/three").out,
              HasSubstr("POST /three"));
  std::string refused = trusting(*box, "curl -sS https://evil.example/ 2>&1; echo $?").out;
  EXPECT_THAT(refused, HasSubstr("403"));
  refused = trusting(*box, "curl -sS http://evil.example/").out;
  EXPECT_THAT(refused, HasSubstr("\"code\":\"denied\""));
  EXPECT_THAT(refused, HasSubstr("\"hint\":\"allow it"));
  EXPECT_TRUE(eventually([&] { return attempts().size() == 5; }));
  int denied = 0;
  for (const EgressAttempt& attempt : attempts()) denied += !attempt.allowed;
  EXPECT_EQ(denied, 2);
  for (const std::string& name : asked()) EXPECT_NE(name, "evil.example");
}

TEST_F(SessionEgressTest, PythonReachesWhatIsListed) {
  EchoServer secure(certificate_for("api.example"));
  put("api.example", secure.port());
  auto box = proxied_sandbox();
  open_door(box, {rule("api.example")});
  EXPECT_THAT(python(*box,
                     "import urllib.request as u\n"
                     "print(u.urlopen('https://api.example/one', timeout=10).read().decode())\n"
                     "try: u.urlopen('https://evil.example/', timeout=10)\n"
                     "except OSError as e: print('refused', e)\n"
                     "try: u.urlopen('http://evil.example/', timeout=10)\n"
                     "except u.HTTPError as e: print(e.code, e.read().decode())\n"),
              testing::AllOf(HasSubstr("GET /one"), HasSubstr("refused"), HasSubstr("403"),
                             HasSubstr("\"fault\":\"policy\"")));
}

// N15: programs use a key that is nowhere inside.
TEST_F(SessionEgressTest, CredentialsAreAddedOutside) {
  EchoServer secure(certificate_for("key.example"));
  put("key.example", secure.port());
  EgressRule keyed = rule("key.example");
  keyed.credentials.push_back({"Authorization", "Bearer top-secret", "/v1"});
  auto box = proxied_sandbox();
  open_door(box, {keyed});
  EXPECT_EQ(trusting(*box,
                     "curl -sS -o /dev/null -w '%{http_code} %{ssl_verify_result}' "
                     "-H 'Authorization: none' https://key.example/v1/x")
                .out,
            "200 0");
  EXPECT_THAT(python(*box,
                     "import urllib.request as u\n"
                     "print(u.urlopen('https://key.example/v1/y', timeout=10).status)\n"
                     "print(u.urlopen('http://key.example/v1/z', timeout=10).status)\n"),
              HasSubstr("200\n200\n"));
  EXPECT_EQ(trusting(*box, "curl -sS -o /dev/null -w '%{http_code}' https://key.example/v10").out,
            "200");
  auto requests = secure.requests();
  ASSERT_EQ(requests.size(), 4U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_THAT(requests[i], HasSubstr("Authorization: Bearer top-secret"));
  EXPECT_THAT(requests[3], Not(HasSubstr("top-secret")));
  EXPECT_EQ(trusting(*box,
                     "env | grep -c top-secret; grep -rc top-secret /workspace /tmp 2>/dev/null "
                     "| grep -v ':0' | wc -l")
                .out,
            "0\n0\n");
  // Who does not trust the session's authority is not fooled.
  EXPECT_NE(trusting(*box,
                     "curl -sS --cacert /etc/ssl/certs/ca-certificates.crt "
                     "https://key.example/v1/x")
                .status.exit_code,
            0);
}

// N01, N08, N13: the proxy is the only way.
TEST_F(SessionEgressTest, ThereIsNoOtherWay) {
  EchoServer plain;
  put("web.example", plain.port());
  auto box = proxied_sandbox();
  open_door(box, {rule("web.example")});
  std::string port = std::to_string(plain.port());
  for (const char* user : {"user", "root"}) {
    EXPECT_NE(
        trusting(*box, "curl -sS --noproxy '*' -m 5 http://web.example/", user).status.exit_code,
        0);
    EXPECT_NE(trusting(*box, "curl -sS --noproxy '*' -m 5 http://127.0.0.1:" + port, user)
                  .status.exit_code,
              0)
        << "the host's loopback is not the sandbox's";
    std::string out = python(
        *box,
        "import socket,errno\n"
        "def t(f):\n"
        "  try: f(); return 'sent'\n"
        "  except OSError as e: return errno.errorcode.get(e.errno, str(e))\n"
        "S=socket\n"
        "for kind,family,to in ((S.SOCK_STREAM,S.AF_INET,('8.8.8.8',443)),\n"
        " (S.SOCK_DGRAM,S.AF_INET,('8.8.8.8',53)),(S.SOCK_DGRAM,S.AF_INET,('8.8.8.8',443)),\n"
        " (S.SOCK_DGRAM,S.AF_INET,('224.0.0.1',5353)),\n"
        " (S.SOCK_STREAM,S.AF_INET6,('2001:4860:4860::8888',443)),\n"
        " (S.SOCK_DGRAM,S.AF_INET6,('2001:4860:4860::8888',53))):\n"
        "  s=S.socket(family,kind); s.settimeout(3)\n"
        "  print(t(lambda: s.connect(to) if kind==S.SOCK_STREAM else s.sendto(b'x',to)))\n"
        "print(t(lambda: "
        "S.socket(S.AF_INET,S.SOCK_RAW,S.IPPROTO_ICMP).sendto(b'x',('8.8.8.8',0))))\n"
        "print(t(lambda: S.socket(S.AF_PACKET,S.SOCK_RAW)))\n"
        "print(t(lambda: S.getaddrinfo('web.example',80)))\n",
        user);
    EXPECT_THAT(out, Not(HasSubstr("sent"))) << out;
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 9) << out;
  }
  EXPECT_EQ(plain.accepted(), 0);
}

// N10: names mean what they mean outside.
TEST_F(SessionEgressTest, HostsFilesInsideMeanNothing) {
  EchoServer good;
  EchoServer evil;
  put("web.example", good.port());
  put("evil.example", evil.port());
  auto box = proxied_sandbox();
  open_door(box, {rule("web.example")});
  trusting(*box, "echo '127.0.0.9 web.example evil.example' >> /etc/hosts", "root");
  EXPECT_THAT(trusting(*box, "curl -sS http://web.example/").out, HasSubstr("GET /"));
  EXPECT_EQ(good.accepted(), 1);
  EXPECT_THAT(trusting(*box,
                       "curl -sS --connect-to web.example:80:evil.example:80 -p "
                       "http://web.example/ 2>&1")
                  .out,
              HasSubstr("403"));
  EXPECT_EQ(evil.accepted(), 0);
}

// N06: it does not matter who asks, or in which pieces.
TEST_F(SessionEgressTest, RelaysAndPiecesGetTheSameVerdict) {
  EchoServer plain;
  put("web.example", plain.port());
  put("evil.example", plain.port());
  auto box = proxied_sandbox();
  open_door(box, {rule("web.example", {80})});
  std::string out =
      python(*box,
             "import socket,threading,time\n"
             "def ask(port, text, step):\n"
             "  s=socket.create_connection(('127.0.0.1',port)); s.settimeout(10)\n"
             "  s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
             "  for i in range(0,len(text),step): s.sendall(text[i:i+step])\n"
             "  head=b''\n"
             "  while b'\\r\\n\\r\\n' not in head and (d:=s.recv(1)): head+=d\n"
             "  return s, head.split(b'\\r')[0].decode()\n"
             "def relay():\n"
             "  l=socket.create_server(('127.0.0.1',4000))\n"
             "  while True:\n"
             "    c,_=l.accept(); u=socket.create_connection(('127.0.0.1',3128))\n"
             "    def pump(a,b):\n"
             "      while d:=a.recv(1): b.sendall(d)\n"
             "    threading.Thread(target=pump,args=(c,u),daemon=True).start()\n"
             "    threading.Thread(target=pump,args=(u,c),daemon=True).start()\n"
             "threading.Thread(target=relay,daemon=True).start(); time.sleep(0.3)\n"
             "for port in (3128,4000):\n"
             "  for host in ('web.example','evil.example'):\n"
             "    for step in (1,3,4096):\n"
             "      print(port, host, step, ask(port, b'CONNECT %s:80 HTTP/1.1\\r\\nHost: "
             "x\\r\\n\\r\\n' % host.encode(), step)[1])\n"
             "s,_=ask(3128, b'CONNECT web.example:80 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', 4096)\n"
             "s.sendall(b'CONNECT evil.example:80 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
             "print('second', s.recv(4096))\n");
  for (const char* line :
       {"3128 web.example 1 HTTP/1.1 200", "4000 web.example 3 HTTP/1.1 200",
        "3128 evil.example 1 HTTP/1.1 403", "4000 evil.example 4096 HTTP/1.1 403"})
    EXPECT_THAT(out, HasSubstr(line));
  // A second CONNECT is just bytes for the first one's host.
  EXPECT_THAT(out, HasSubstr("second b'HTTP/1.1 200 OK"));
  for (const std::string& name : asked()) EXPECT_NE(name, "evil.example");
}

// N12: what programs hold open is bounded, and nothing else suffers.
TEST_F(SessionEgressTest, AFloodOfTunnelsIsBounded) {
  Server sink([](Peer& peer) { peer.read_to_end(); });
  put("sink.example", sink.port());
  auto box = proxied_sandbox();
  EgressLimits limits;
  limits.connections = 50;
  SessionEgress* door = open_door(box, {rule("sink.example", {9000})}, limits);
  Command flood;
  flood.argv = {"python3", "-c",
                "import socket,time\n"
                "held=[]\n"
                "for i in range(400):\n"
                "  s=socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1',3128)); "
                "held.append(s)\n"
                "time.sleep(1)\n"
                "for s in held:\n"
                "  try: s.send(b'CONNECT sink.example:9000 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
                "  except OSError: pass\n"
                "print('flooded',flush=True); time.sleep(100)\n"};
  auto program = start(*box, flood);
  read_until(*program, "flooded");
  std::this_thread::sleep_for(1s);
  EgressCounts counts;
  on_engine([&] { counts = door->counts(); });
  EXPECT_LE(counts.connections, 50U);
  EXPECT_GE(counts.connections, 40U);
  EXPECT_LE(sink.accepted(), 50);
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n");
  must(program->signal(SIGKILL));
  must(program->wait());
  EXPECT_TRUE(eventually([&] {
    on_engine([&] { counts = door->counts(); });
    return counts.connections == 0;
  }));
  EXPECT_THAT(trusting(*box, "curl -sS -m 10 http://evil.example/").out, HasSubstr("denied"));
}

// N16: the policy is the sandbox's own.
TEST_F(SessionEgressTest, NeighboursHaveListsOfTheirOwn) {
  EchoServer one;
  EchoServer two;
  put("one.example", one.port());
  put("two.example", two.port());
  auto box_one = proxied_sandbox();
  auto box_two = proxied_sandbox();
  open_door(box_one, {rule("one.example")});
  open_door(box_two, {rule("two.example")});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(trusting(*box_one, "curl -sS http://one.example/ http://two.example/").out,
                testing::AllOf(HasSubstr("Host: one.example"), HasSubstr("denied")));
    EXPECT_THAT(trusting(*box_two, "curl -sS http://one.example/ http://two.example/").out,
                testing::AllOf(HasSubstr("Host: two.example"), HasSubstr("denied")));
  }
}

// N11: a new list counts at once; without a door nothing leaves.
TEST_F(SessionEgressTest, ListsChangeAndDoorsClose) {
  EchoServer plain;
  put("web.example", plain.port());
  auto box = proxied_sandbox();
  SessionEgress* door = open_door(box, {});
  EXPECT_THAT(trusting(*box, "curl -sS http://web.example/").out, HasSubstr("denied"));
  auto policy = EgressPolicy::make({rule("web.example")});
  on_engine([&] { door->replace(*policy); });
  EXPECT_THAT(trusting(*box, "curl -sS http://web.example/").out, HasSubstr("GET /"));
  on_engine([&] { door->replace(EgressPolicy()); });
  EXPECT_THAT(trusting(*box, "curl -sS http://web.example/").out, HasSubstr("denied"));
  on_engine([&] { door->stop(); });
  EXPECT_NE(trusting(*box, "curl -sS -m 2 http://web.example/").status.exit_code, 0);
  EXPECT_NE(trusting(*box, "curl -sS -m 2 http://web.example/").status.exit_code, 0);
  EXPECT_EQ(plain.accepted(), 1);
}

TEST_F(SessionEgressTest, EverythingEndsWithTheSandbox) {
  Server sink([](Peer& peer) { peer.read_to_end(); });
  put("sink.example", sink.port());
  auto box = proxied_sandbox();
  SessionEgress* door = open_door(box, {rule("sink.example", {9000})});
  Command holder;
  holder.argv = {
      "python3", "-c",
      "import socket,time\n"
      "held=[]\n"
      "for i in range(10):\n"
      "  s=socket.create_connection(('127.0.0.1',3128)); held.append(s)\n"
      "  s.sendall(b'CONNECT sink.example:9000 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); s.recv(100)\n"
      "print('held',flush=True); time.sleep(100)\n"};
  auto program = start(*box, holder);
  read_until(*program, "held");
  program.reset();
  must(box->destroy());
  EXPECT_TRUE(eventually([&] {
    EgressCounts counts;
    on_engine([&] { counts = door->counts(); });
    return counts.connections == 0;
  }));
  EXPECT_EQ(attempts().size(), 10U);
  // And a door that goes first takes its connections along.
  auto other = proxied_sandbox();
  open_door(other, {rule("sink.example", {9000})});
  auto again = start(*other, holder);
  read_until(*again, "held");
  close_doors();
  EXPECT_EQ(attempts().size(), 20U);
  must(other->destroy());
}

}  // namespace
}  // namespace asr::test
