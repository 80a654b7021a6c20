// Connections to servers inside, and what the network of a sandbox does not reach.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.hpp"
#include "kernel_test.hpp"

namespace asr::test {
namespace {

using testing::HasSubstr;

class Ports : public KernelTest {
 protected:
  void serve(Sandbox& box, const std::string& port, const std::string& how = "serve",
             const std::string& user = "user") {
    Command command = tool({how, port});
    command.user = user;
    servers_.push_back(start(box, command));
    ASSERT_THAT(read_until(*servers_.back(), "listening"), HasSubstr("listening\n"));
  }
  static std::string exchange(const UniqueFd& socket, const std::string& text) {
    ::fcntl(socket.get(), F_SETFL, 0);
    if (::write(socket.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return "not sent";
    ::shutdown(socket.get(), SHUT_WR);
    return read_fd(socket.get());
  }
  std::vector<ExecutionPtr> servers_;
};

TEST_F(Ports, ServerInsideIsReached) {
  auto box = sandbox_with_tool();
  serve(*box, "8080");
  EXPECT_EQ(exchange(must(box->connect(8080)), "ping"), "ping");
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(exchange(must(box->connect(8080)), std::to_string(i)), std::to_string(i));
}

TEST_F(Ports, ServerOnIpv6Only) {
  auto box = sandbox_with_tool();
  serve(*box, "8080", "serve6");
  EXPECT_EQ(exchange(must(box->connect(8080)), "six"), "six");
}

TEST_F(Ports, LowPortsAreForEverybody) {
  auto box = sandbox_with_tool();
  serve(*box, "80");
  EXPECT_EQ(exchange(must(box->connect(80)), "low"), "low");
}

TEST_F(Ports, PythonsWebServer) {
  auto box = sandbox();
  if (!sh(*box, "command -v python3").status.ok())
    GTEST_SKIP() << "there is no python3 on this machine";
  must(box->write_file("/workspace/index.html", "<h1>hello</h1>"));
  auto server = start(*box, shell("exec python3 -m http.server 8000 --bind 127.0.0.1 2>&1"));
  ASSERT_TRUE(eventually([&] { return wait(box->connect(8000)).has_value(); }));
  std::string answer = exchange(must(box->connect(8000)), "GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("<h1>hello</h1>"));
}

TEST_F(Ports, NothingListensIsNotFound) {
  auto box = sandbox();
  auto connection = wait(box->connect(8080));
  ASSERT_TRUE(failed_with(connection, Errc::not_found));
  EXPECT_THAT(connection.error().what, HasSubstr("8080"));
  EXPECT_FALSE(wait(box->connect(0)));
}

TEST_F(Ports, WithoutLoopbackIsAConflict) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.network = Network::none;
  auto box = sandbox(spec);
  EXPECT_TRUE(failed_with(wait(box->connect(8080)), Errc::conflict));
}

// A connection outlives its sandbox as any does: it ends.
TEST_F(Ports, ConnectionEndsWithTheSandbox) {
  auto box = sandbox_with_tool();
  serve(*box, "8080");
  UniqueFd socket = must(box->connect(8080));
  must(box->destroy());
  ::fcntl(socket.get(), F_SETFL, 0);
  EXPECT_EQ(read_fd(socket.get()), "");
}

TEST_F(Ports, SandboxesDoNotReachEachOther) {
  auto one = sandbox_with_tool();
  auto other = sandbox_with_tool();
  serve(*one, "8080");
  EXPECT_THAT(must(one->run(tool({"dial", "8080"}))).out, HasSubstr("dialled 1"));
  EXPECT_THAT(must(other->run(tool({"dial", "8080"}))).out, HasSubstr("dialled 0"));
  EXPECT_TRUE(failed_with(wait(other->connect(8080)), Errc::not_found));
}

TEST_F(Ports, HostsLoopbackIsOutOfReach) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::string port = std::to_string(ntohs(address.sin_port));
  auto box = sandbox_with_tool();
  EXPECT_THAT(must(box->run(tool({"dial", port}))).out, HasSubstr("dialled 0"));
  EXPECT_TRUE(failed_with(wait(box->connect(ntohs(address.sin_port))), Errc::not_found));
  // The dialler itself works: here it reaches what is inside.
  serve(*box, "8081");
  EXPECT_THAT(must(box->run(tool({"dial", "8081"}))).out, HasSubstr("dialled 1"));
}

TEST_F(Ports, NoNetworkMeansNoLoopback) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.network = Network::none;
  auto box = sandbox_with_tool(spec);
  EXPECT_THAT(must(box->run(tool({"dial", "8080"}))).out, HasSubstr("Network is unreachable"));
}

}  // namespace
}  // namespace asr::test
