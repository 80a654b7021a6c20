// Connections that leave a sandbox without a network: through a door of pid 1's, by descriptor.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "engine/egress_queue.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

namespace fs = std::filesystem;

// What a program in there says to the proxy: sends a line, prints what comes back.
constexpr const char* kClient =
    "import socket,sys\n"
    "s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
    "s.sendall(b'hello proxy\\n')\n"
    "print(s.makefile().readline(),end='')\n";

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

// One line, up to five seconds.
std::string read_line(int fd) {
  std::string line;
  auto until = Clock::now() + 5s;
  while (Clock::now() < until && !line.ends_with('\n')) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    char c = 0;
    if (::recv(fd, &c, 1, MSG_DONTWAIT) <= 0) break;
    line += c;
  }
  return line;
}

class EgressTest : public KernelTest {
 protected:
  static SandboxSpec proxied(std::uint16_t port = 3128) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.network = Network::proxied;
    spec.proxy_port = port;
    return spec;
  }
  ExecutionPtr start_client(Sandbox& box, std::uint16_t port = 3128) {
    Command command;
    command.argv = {"python3", "-c", kClient, std::to_string(port)};
    return start(box, command);
  }
  // Serves one connection as an echo.
  void echo_one(Sandbox& box) {
    UniqueFd connection = must(box.accept_egress());
    std::string line = read_line(connection.get());
    EXPECT_EQ(line, "hello proxy\n");
    EXPECT_EQ(::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }
};

TEST_F(EgressTest, AConnectionComesOut) {
  auto box = sandbox(proxied());
  for (int i = 0; i < 3; ++i) {
    auto client = start_client(*box);
    echo_one(*box);
    EXPECT_EQ(read_to_end(*client), "hello proxy\n");
    EXPECT_TRUE(must(client->wait()).ok());
  }
  EXPECT_EQ(box->isolation().find("network")->guarantee, Guarantee::full);
}

TEST_F(EgressTest, AnyPortWillDo) {
  for (std::uint16_t port : {80, 8080}) {
    auto box = sandbox(proxied(port));
    auto client = start_client(*box, port);
    echo_one(*box);
    EXPECT_EQ(read_to_end(*client), "hello proxy\n");
  }
  EXPECT_TRUE(failed_with(wait(engine()->create(proxied(0))), Errc::invalid));
}

TEST_F(EgressTest, ProgramsAreToldWhereItIs) {
  auto box = sandbox(proxied(8888));
  RunResult result = sh(*box, "env | grep -i proxy | LC_ALL=C sort");
  EXPECT_EQ(result.out,
            "ALL_PROXY=http://127.0.0.1:8888\nHTTPS_PROXY=http://127.0.0.1:8888\n"
            "HTTP_PROXY=http://127.0.0.1:8888\nNODE_USE_ENV_PROXY=1\n"
            "NO_PROXY=localhost,127.0.0.1\nhttp_proxy=http://127.0.0.1:8888\n"
            "https_proxy=http://127.0.0.1:8888\nno_proxy=localhost,127.0.0.1\n");
  Command own = shell("echo $http_proxy");
  own.env["http_proxy"] = "mine";
  EXPECT_EQ(must(box->run(own)).out, "mine\n");
  EXPECT_EQ(sh(*sandbox(), "env | grep -ci proxy").out, "0\n");
}

TEST_F(EgressTest, ThereIsNoOtherWayOut) {
  auto box = sandbox(proxied());
  const char* script =
      "import socket,errno\n"
      "for a in ('10.0.0.1','8.8.8.8','169.254.169.254'):\n"
      "  s=socket.socket(); s.settimeout(2)\n"
      "  print(errno.errorcode[s.connect_ex((a,80))])\n";
  for (const char* user : {"user", "root"})
    EXPECT_EQ(run(*box, {"python3", "-c", script}, user).out,
              "ENETUNREACH\nENETUNREACH\nENETUNREACH\n");
}

TEST_F(EgressTest, NobodyElseGetsThePort) {
  auto box = sandbox(proxied());
  const char* script =
      "import socket\n"
      "for host in ('127.0.0.1','0.0.0.0'):\n"
      "  for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):\n"
      "    s=socket.socket()\n"
      "    try:\n"
      "      if option: s.setsockopt(socket.SOL_SOCKET, option, 1)\n"
      "      s.bind((host,3128)); s.listen()\n"
      "      print('taken', host, option)\n"
      "    except OSError as e: pass\n"
      "print('done')\n";
  for (const char* user : {"user", "root"})
    EXPECT_EQ(run(*box, {"python3", "-c", script}, user).out, "done\n");
  // Whatever is killed in there, the door stays.
  must(box->kill_all());
  auto client = start_client(*box);
  echo_one(*box);
  EXPECT_EQ(read_to_end(*client), "hello proxy\n");
}

TEST_F(EgressTest, WithoutAProxyThereIsNone) {
  auto box = sandbox();
  EXPECT_TRUE(failed_with(wait(box->accept_egress()), Errc::invalid));
  EXPECT_NE(must(start_client(*box)->wait()).exit_code, 0);
}

TEST_F(EgressTest, WhileNobodyAcceptsConnectionsWait) {
  auto box = sandbox(proxied());
  std::size_t before = open_descriptors();
  auto client = start_client(*box);
  std::this_thread::sleep_for(300ms);
  EXPECT_LE(open_descriptors(), before + 4) << "its pipes, and nothing of the connection";
  echo_one(*box);
  EXPECT_EQ(read_to_end(*client), "hello proxy\n");
}

TEST_F(EgressTest, WaitingEndsWithTheSandbox) {
  auto box = sandbox(proxied());
  auto waiting = begin(box->accept_egress());
  auto another = begin(box->accept_egress());
  std::this_thread::sleep_for(50ms);
  must(box->destroy());
  ASSERT_EQ(waiting.wait_for(10s), std::future_status::ready);
  EXPECT_TRUE(failed_with(waiting.get(), Errc::gone));
  EXPECT_TRUE(failed_with(another.get(), Errc::gone));
  EXPECT_TRUE(failed_with(wait(box->accept_egress()), Errc::gone));
}

// A thousand at once cost a few descriptors, and those that are taken are served.
TEST_F(EgressTest, AFloodIsBounded) {
  auto box = sandbox(proxied());
  const char* flood =
      "import socket,time\n"
      "held=[]\n"
      "for i in range(1000):\n"
      "  s=socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1',3128)); "
      "held.append(s)\n"
      "print('flooded',flush=True)\n"
      "time.sleep(100)\n";
  Command command;
  command.argv = {"python3", "-c", flood};
  auto program = start(*box, command);
  read_until(*program, "flooded");
  std::size_t before = open_descriptors();
  std::vector<UniqueFd> taken;
  taken.push_back(must(box->accept_egress()));
  std::this_thread::sleep_for(1s);
  EXPECT_LE(open_descriptors(), before + 40) << "handed out and not taken";
  auto started = Clock::now();
  for (int i = 0; i < 100; ++i) taken.push_back(must(box->accept_egress()));
  EXPECT_LE(open_descriptors(), before + 101 + 40);
  EXPECT_LT(since(started), 10s);
  EXPECT_EQ(sh(*box, "echo alive").out, "alive\n") << "and nothing else suffers";
  must(program->signal(SIGKILL));
}

// One door each, whatever the neighbours do.
TEST_F(EgressTest, SandboxesDoNotMeet) {
  auto one = sandbox(proxied());
  auto two = sandbox(proxied());
  auto client = start_client(*one);
  auto wrong = begin(two->accept_egress());
  echo_one(*one);
  EXPECT_EQ(read_to_end(*client), "hello proxy\n");
  EXPECT_EQ(wrong.wait_for(200ms), std::future_status::timeout);
  must(two->destroy());
  EXPECT_TRUE(failed_with(wrong.get(), Errc::gone));
}

TEST_F(EgressTest, FromAPool) {
  must(engine()->warm(proxied(), {.size = 2, .refill_at_once = 1}));
  auto box = sandbox(proxied());
  auto client = start_client(*box);
  echo_one(*box);
  EXPECT_EQ(read_to_end(*client), "hello proxy\n");
}

TEST_F(EgressTest, GoesOnAfterAdoption) {
  options().instance = "node";
  auto box = sandbox(proxied());
  must(box->keep("proxied"));
  auto first = start_client(*box);
  echo_one(*box);  // From now on some more may come out unasked.
  EXPECT_EQ(read_to_end(*first), "hello proxy\n");
  first.reset();
  auto late = start_client(*box);
  must(late->keep("late"));
  std::this_thread::sleep_for(200ms);  // It lies with the daemon that leaves, and dies with it.
  must(engine()->leave());
  late.reset();
  box.reset();
  drop_engine();

  auto all = engine()->adopted();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]->spec(), proxied());
  for (int i = 0; i < 40; ++i) {
    auto client = start_client(*all[0]);
    echo_one(*all[0]);
    EXPECT_EQ(read_to_end(*client), "hello proxy\n");
  }
}

// ---- what is believed
// ----------------------------------------------------------------------------

TEST(CheckEgress, OnlyConnectionsOfLoopback) {
  auto make = [](int type, int domain = AF_INET) {
    return UniqueFd(::socket(domain, type | SOCK_CLOEXEC, 0));
  };
  UniqueFd listener = make(SOCK_STREAM);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::uint16_t port = ntohs(address.sin_port);
  UniqueFd client = make(SOCK_STREAM);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  UniqueFd served(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(served);

  EXPECT_TRUE(check_egress(served.get(), port));
  EXPECT_FALSE(check_egress(served.get(), static_cast<std::uint16_t>(port + 1)));
  EXPECT_FALSE(check_egress(client.get(), port)) << "the client's own end";
  EXPECT_FALSE(check_egress(listener.get(), port));
  EXPECT_FALSE(check_egress(make(SOCK_STREAM).get(), port)) << "not connected";
  EXPECT_FALSE(check_egress(make(SOCK_DGRAM).get(), port));
  EXPECT_FALSE(check_egress(make(SOCK_STREAM, AF_UNIX).get(), port));
  UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(check_egress(file.get(), port));
}

}  // namespace
}  // namespace asr::test
