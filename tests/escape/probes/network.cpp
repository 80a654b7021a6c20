// N08, N09, N13: who answers. For sandboxes that have a network.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "probe.hpp"

namespace probes {

namespace {

// "tcp 10.0.0.1 80", and how to send it otherwise than usual.
struct Target {
  std::string how;
  std::string host;
  int port = 0;
};

Target parse(const std::string& text) {
  std::size_t first = text.find(' ');
  std::size_t second = text.find(' ', first + 1);
  return {text.substr(0, first), text.substr(first + 1, second - first - 1),
          std::atoi(text.c_str() + second)};
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  (void)::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

bool prepare(int fd, const std::string& how) {
  int on = 1;
  if (how == "udp-broadcast")
    return ::setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0;
  if (how == "udp-dontroute")  // As if everybody were on the same wire.
    return ::setsockopt(fd, SOL_SOCKET, SO_DONTROUTE, &on, sizeof on) == 0 &&
           ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5) == 0;
  if (how == "udp-loopback-source" || how == "udp-forged-source") {
    (void)::setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof on);
    (void)::setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof on);
    sockaddr_in own = address_of(how == "udp-loopback-source" ? "127.0.0.1" : "8.8.8.8", 0);
    return ::bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0;
  }
  if (how == "udp-source-route") {  // By way of a public address, on to the private one.
    std::array<unsigned char, 8> option{0x83, 7, 4, 93, 184, 216, 34, 1};
    return ::setsockopt(fd, SOL_IP, IP_OPTIONS, option.data(), option.size()) == 0;
  }
  return true;
}

Outcome talk(const Target& target) {
  bool tcp = target.how == "tcp";
  int fd = ::socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
  timeval patience{1, 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (!prepare(fd, target.how)) return from(-1, "set up");
  sockaddr_in address = address_of(target.host, target.port);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (tcp && ::connect(fd, to, sizeof address) != 0) return from(-1, "connect");
  if (::sendto(fd, "?", 1, MSG_NOSIGNAL, tcp ? nullptr : to, tcp ? 0 : sizeof address) != 1)
    return from(-1, "send");
  char answer[64];
  ssize_t n = ::recv(fd, answer, sizeof answer, 0);
  if (n <= 0) return from(-1, "no answer");
  return when(true, std::string(answer, static_cast<std::size_t>(n)));
}

// Arguments: targets; those after "needed" must answer inside, too.
void talk_to_all(Probe& probe) {
  bool needed = false;
  for (std::size_t i = 0; i < probe.args(); ++i) {
    if (probe.arg(i) == "needed") {
      needed = true;
      continue;
    }
    Target target = parse(probe.arg(i));
    if (needed) {
      probe.needed(probe.arg(i), [&] { return talk(target); });
    } else if (target.how == "tcp" || target.how == "udp") {
      probe.attempt(probe.arg(i), [&] { return talk(target); });
    } else {
      probe.attempt(probe.arg(i), Unprovable{"means something behind a link of its own only"},
                    [&] { return talk(target); });
    }
  }
}

}  // namespace

std::span<const Case> network_cases() {
  static constexpr Case cases[] = {
      {"N08", talk_to_all, {.host_network = true}},
      {"N09", talk_to_all, {.host_network = true}},
      {"N13", talk_to_all, {.host_network = true}},
  };
  return cases;
}

}  // namespace probes
