#include "support/small_internet.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "os/file.hpp"
#include "os/netns.hpp"

namespace asr::test {

namespace {

constexpr MacAddress kMachineMac{2, 0, 0, 1, 0, 1};
constexpr MacAddress kWorldMac{2, 0, 0, 1, 0, 2};
constexpr const char* kWorldGateway = "198.51.100.254";
constexpr int kLoopback = 1;

template <class T>
T need(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().what);
  return unwrap(std::move(result));
}

Ipv4 ip(const std::string& text) { return need(parse_ipv4(text)); }

void enter(int network) {
  if (::setns(network, CLONE_NEWNET) != 0) throw std::runtime_error("setns");
}

UniqueFd listen_at(Server::Kind kind, const std::string& address, int port) {
  int type = kind == Server::Kind::tcp ? SOCK_STREAM : SOCK_DGRAM;
  UniqueFd fd(::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(static_cast<std::uint16_t>(port));
  own.sin_addr.s_addr = ::inet_addr(address.c_str());
  bool ready = ::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0 &&
               (kind == Server::Kind::udp || ::listen(fd.get(), 64) == 0);
  if (!ready) throw std::runtime_error("cannot listen at " + address);
  return fd;
}

}  // namespace

Server::Server(Kind kind, UniqueFd socket)
    : socket_(std::move(socket)), thread_([this, kind] { serve(kind); }) {}

Server::~Server() {
  ending_ = true;
  thread_.join();
}

void Server::serve(Kind kind) {
  while (!ending_) {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 20) <= 0) continue;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    auto* peer = reinterpret_cast<sockaddr*>(&from);
    char text[64];
    if (kind == Kind::tcp) {
      UniqueFd visitor(::accept4(socket_.get(), peer, &size, SOCK_CLOEXEC));
      if (!visitor) continue;
      ++visitors_;
      std::string answer = ::inet_ntoa(from.sin_addr);
      (void)!::send(visitor.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      (void)!::recv(visitor.get(), text, sizeof text, 0);  // Or the close would be a reset.
    } else if (::recvfrom(socket_.get(), text, sizeof text, 0, peer, &size) >= 0) {
      ++visitors_;
      std::string answer = ::inet_ntoa(from.sin_addr);
      (void)!::sendto(socket_.get(), answer.data(), answer.size(), 0, peer, size);
    }
  }
}

SmallInternet::SmallInternet() : before_(need(own_network())) {
  need(in_new_network([this]() -> Result<void> {
    world_ = TRY(own_network());
    outside_.emplace(TRY(RouteSocket::open()));
    return {};
  }));
  if (::unshare(CLONE_NEWNET) != 0) throw std::runtime_error("unshare");
  machine_.emplace(need(RouteSocket::open()));
  need(write_value(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "1"));
  need(machine_->set_state(kLoopback, LinkState::up));
  need(outside_->set_state(kLoopback, LinkState::up));
  need(machine_->make_veth({"up0", kMachineMac}, {"wan0", kWorldMac}, world_.get(), 1420));

  int link = need(machine_->link("up0")).index;
  need(machine_->set_state(link, LinkState::up));
  need(machine_->add_address(link, ip(kMachine)));
  need(machine_->add_address(link, ip(kMachineToo)));
  need(machine_->add_neighbour(link, ip(kWorldGateway), kWorldMac));
  need(machine_->add_default_route(link, ip(kWorldGateway)));
  outside_link_ = need(outside_->link("wan0")).index;
  need(outside_->set_state(outside_link_, LinkState::up));
  need(outside_->add_address(outside_link_, ip(kWorldGateway)));
  addresses_.emplace_back(kWorldGateway);
  world_route(kMachine);
}

SmallInternet::~SmallInternet() { enter(before_.get()); }

void SmallInternet::world_route(const std::string& address) {
  need(outside_->add_neighbour(outside_link_, ip(address), kMachineMac));
  need(outside_->add_host_route(outside_link_, ip(address), ip(kWorldGateway)));
}

void SmallInternet::in_world(const std::function<void()>& work) {
  std::thread([&] {
    enter(world_.get());
    work();
  }).join();
}

std::unique_ptr<Server> SmallInternet::world(Server::Kind kind, const std::string& address,
                                             int port) {
  if (std::find(addresses_.begin(), addresses_.end(), address) == addresses_.end()) {
    need(outside_->add_address(outside_link_, ip(address)));
    addresses_.push_back(address);
  }
  UniqueFd socket;
  in_world([&] { socket = listen_at(kind, address, port); });
  return std::make_unique<Server>(kind, std::move(socket));
}

std::unique_ptr<Server> SmallInternet::machine(Server::Kind kind, int port,
                                               const std::string& address) {
  return std::make_unique<Server>(kind, listen_at(kind, address, port));
}

std::string reach_outside(const std::string& tool, const std::string& arguments) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((tool + " reach " + arguments).c_str(), "re"),
                                             ::pclose);
  std::string said;
  char text[256];
  while (pipe && ::fgets(text, sizeof text, pipe.get()) != nullptr) said += text;
  return said;
}

}  // namespace asr::test
