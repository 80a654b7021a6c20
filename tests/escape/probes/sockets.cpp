// E26-E28: families of sockets, and who can be reached over them. A vsock is made but never
// connected.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

#include "probe.hpp"

namespace probes {

namespace {

struct Kind {
  const char* name;
  unsigned long family, type, protocol;
};

// Families that a kernel may lack are provable only where it has them.
constexpr Kind kRefused[] = {
    {"AF_VSOCK stream", 40, SOCK_STREAM, 0},
    {"AF_VSOCK datagram", 40, SOCK_DGRAM, 0},
    {"AF_ALG", 38, SOCK_SEQPACKET, 0},
    {"AF_PACKET raw", 17, SOCK_RAW, 0x0300},
    {"AF_PACKET datagram", 17, SOCK_DGRAM, 0x0300},
    {"AF_INET SOCK_PACKET", AF_INET, SOCK_PACKET, 0x0300},
    {"raw ICMP", AF_INET, SOCK_RAW, IPPROTO_ICMP},
    {"raw TCP", AF_INET, SOCK_RAW, IPPROTO_TCP},
    {"raw IP", AF_INET, SOCK_RAW, IPPROTO_RAW},
    {"raw ICMPv6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6},
    {"netlink SOCK_DIAG", AF_NETLINK, SOCK_RAW, 4},
    {"netlink XFRM", AF_NETLINK, SOCK_RAW, 6},
    {"netlink SELINUX", AF_NETLINK, SOCK_RAW, 7},
    {"netlink AUDIT", AF_NETLINK, SOCK_RAW, 9},
    {"netlink FIB_LOOKUP", AF_NETLINK, SOCK_RAW, 10},
    {"netlink CONNECTOR", AF_NETLINK, SOCK_RAW, 11},
    {"netlink NETFILTER", AF_NETLINK, SOCK_RAW, 12},
    {"netlink KOBJECT_UEVENT", AF_NETLINK, SOCK_RAW, 15},
    {"netlink GENERIC", AF_NETLINK, SOCK_RAW, 16},
    {"netlink CRYPTO", AF_NETLINK, SOCK_RAW, 21},
    {"AF_XDP", 44, SOCK_RAW, 0},
    {"AF_KEY", 15, SOCK_RAW, 2},
    {"AF_BLUETOOTH", 31, SOCK_RAW, 1},
    {"AF_RDS", 21, SOCK_SEQPACKET, 0},
    {"AF_SMC", 43, SOCK_STREAM, 0},
    {"AF_TIPC", 30, SOCK_RDM, 0},
    {"AF_CAN", 29, SOCK_RAW, 1},
    {"AF_QIPCRTR", 42, SOCK_DGRAM, 0},
    {"AF_KCM", 41, SOCK_SEQPACKET, 0},
    {"AF_PPPOX", 24, SOCK_STREAM, 0},
    {"AF_LLC", 26, SOCK_STREAM, 0},
    {"AF_NFC", 39, SOCK_SEQPACKET, 0},
    {"AF_AX25", 3, SOCK_SEQPACKET, 0},
    {"AF_APPLETALK", 5, SOCK_DGRAM, 0},
    {"AF_PHONET", 35, SOCK_DGRAM, 0},
    {"AF_IEEE802154", 36, SOCK_DGRAM, 0},
    {"AF_MCTP", 45, SOCK_DGRAM, 0},
    {"SCTP", AF_INET, SOCK_STREAM, 132},
    {"DCCP", AF_INET, 6, 33},
    {"MPTCP", AF_INET, SOCK_STREAM, 262},
    {"L2TP", AF_INET, SOCK_DGRAM, 115},
    {"AF_VSOCK with bits above the 32nd", 0x100000000UL | 40, SOCK_STREAM, 0},
    {"AF_ALG with bits above the 32nd", 0x100000000UL | 38, SOCK_SEQPACKET, 0},
    {"AF_PACKET with bits above the 32nd", 0x100000000UL | 17, SOCK_RAW, 0x0300},
    {"netlink XFRM with bits above the 32nd", AF_NETLINK, SOCK_RAW, 0x100000000UL | 6},
    {"raw ICMP with bits above the 32nd in its type", AF_INET, 0x100000000UL | SOCK_RAW,
     IPPROTO_ICMP},
};

bool lacking(int err) {
  return err == EAFNOSUPPORT || err == EPROTONOSUPPORT || err == ESOCKTNOSUPPORT || err == EINVAL ||
         err == ENOENT;
}

void e26_families(Probe& probe) {
  for (const Kind& kind : kRefused) {
    std::string reason;
    if (probe.outside()) {
      int fd = static_cast<int>(
          ::syscall(SYS_socket, kind.family, kind.type | SOCK_CLOEXEC, kind.protocol));
      if (fd < 0 && lacking(errno)) reason = "this kernel has none: " + errno_name(errno);
      ::close(fd);
    }
    probe.attempt(std::string("socket ") + kind.name, Unprovable{reason}, [&] {
      return from(::syscall(SYS_socket, kind.family, kind.type, kind.protocol));
    });
  }
  for (const Kind& kind : {Kind{"AF_UNIX", AF_UNIX, SOCK_STREAM, 0},
                           {"TCP", AF_INET, SOCK_STREAM, 0},
                           {"UDP", AF_INET, SOCK_DGRAM, 0},
                           {"TCP over IPv6", AF_INET6, SOCK_STREAM, 0}})
    probe.needed(std::string("socket ") + kind.name, [&] {
      return from(::syscall(SYS_socket, kind.family, kind.type, kind.protocol));
    });
  probe.note("socket netlink ROUTE", [] { return from(::socket(AF_NETLINK, SOCK_RAW, 0)); });
  probe.attempt("change an interface", [] {
    int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    struct {
      char name[16];
      short flags;
      char rest[22];
    } request{"lo", 0x1 | 0x40, {}};
    return from(::ioctl(fd, 0x8914 /* SIOCSIFFLAGS */, &request));
  });
}

Outcome connect_unix(const std::string& name, bool abstract) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = abstract ? std::string(1, '\0') + name : name;
  if (path.size() >= sizeof(address.sun_path)) return when(false, "name too long");
  ::memcpy(address.sun_path, path.data(), path.size());
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return from(::connect(fd, reinterpret_cast<sockaddr*>(&address), size));
}

// Arguments: the name of an abstract socket, the path of another.
void e27_unix(Probe& probe) {
  probe.attempt("connect to an abstract socket of the host",
                [&] { return connect_unix(probe.arg(0), true); });
  probe.attempt("connect to a socket of the host by its path",
                [&] { return connect_unix(probe.arg(1), false); });
  if (!probe.outside() && probe.args() > 2)
    probe.attempt("connect to an abstract socket of a neighbour",
                  [&] { return connect_unix(probe.arg(2), true); });
}

// Argument: a name. Listens until it is killed.
void serve_abstract(Probe& probe) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = std::string(1, '\0') + probe.arg(0);
  ::memcpy(address.sun_path, path.data(), path.size());
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  bool ok = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(fd, 4) == 0;
  std::puts(ok ? "listening" : "failed");
  std::fflush(stdout);
  for (;;) ::pause();
}

// Arguments: a port, and how many connections may wait. Listens until it is killed and accepts
// none.
void serve_tcp(Probe& probe) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(probe.number(0, 8080)));
  bool ok = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
            ::listen(fd, static_cast<int>(probe.number(1, 4096))) == 0;
  std::puts(ok ? "listening" : "failed");
  std::fflush(stdout);
  for (;;) ::pause();
}

Outcome connect_to(const std::string& host, long port, int type) {
  bool six = host.find(':') != std::string::npos;
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  v6.sin6_family = AF_INET6;
  v4.sin_family = AF_INET;
  v6.sin6_port = v4.sin_port = htons(static_cast<std::uint16_t>(port));
  (void)::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr);
  (void)::inet_pton(AF_INET, host.c_str(), &v4.sin_addr);
  int fd = ::socket(six ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return from(-1, "socket");
  int on = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
  const sockaddr* address =
      six ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t size = six ? sizeof(v6) : sizeof(v4);
  if (type == SOCK_DGRAM) return from(::sendto(fd, "x", 1, 0, address, size));
  if (::connect(fd, address, size) == 0) return when(true);
  if (errno != EINPROGRESS) return from(-1);
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, 1500) != 1) return when(false, "no answer");
  int err = 0;
  socklen_t length = sizeof(err);
  (void)::getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &length);
  return {err == 0, err, ""};
}

// Arguments: a port on which the host listens, and addresses of the host.
void e28_addresses(Probe& probe) {
  long port = probe.number(0, 47001);
  for (std::size_t i = 1; i < probe.args(); ++i)
    probe.attempt("connect to the host at " + probe.arg(i),
                  [&] { return connect_to(probe.arg(i), port, SOCK_STREAM); });
  Unprovable never{"never sent outside"};
  auto inside = [&](const std::string& what, const std::string& host, long at, int type) {
    probe.attempt(what + " " + host, never, [&] {
      if (probe.outside()) return when(false, "not tried outside");
      return connect_to(host, at, type);
    });
  };
  for (const char* host :
       {"169.254.169.254", "10.0.2.2", "172.17.0.1", "192.168.0.1", "8.8.8.8", "fd00::1", "fe80::1",
        "2001:4860:4860::8888", "::ffff:8.8.8.8", "0.0.0.0"})
    inside("connect to", host, 80, SOCK_STREAM);
  for (const char* host :
       {"255.255.255.255", "224.0.0.251", "239.255.255.250", "8.8.8.8", "ff02::fb"})
    inside("send a datagram to", host, 5353, SOCK_DGRAM);
}

}  // namespace

std::span<const Case> socket_cases() {
  static constexpr Case cases[] = {
      {"E26", e26_families, {}},
      {"E27", e27_unix, {.host_network = true}},
      {"E28", e28_addresses, {.host_network = true}},
      {"SERVE-abstract", serve_abstract, {}},
      {"SERVE-tcp", serve_tcp, {}},
  };
  return cases;
}

}  // namespace probes
