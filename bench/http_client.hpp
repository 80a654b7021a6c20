// A client as small as can be, for programs that measure a server from outside. Knows this server
// and no other: answers have a length, and whatever is out of the ordinary ends the measurement.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;
using Times = std::vector<std::int64_t>;  // nanoseconds

inline std::int64_t since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

inline std::string json_list(const Times& times) {
  return fmt::format("[{}]", fmt::join(times, ", "));
}

struct Answer {
  int status = 0;
  std::string body;
};

// A kept connection, as simple as HTTP allows. Throws when anything is out of the ordinary.
class Connection {
 public:
  explicit Connection(std::uint16_t port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(fmt::format("connect: {}", std::strerror(errno)));
    int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(fd_); }

  Answer call(std::string_view method, std::string_view target, std::string_view body = "") {
    // In one piece, as ordinary clients send what is short.
    send_all(head_of(method, target, body.size()).append(body));
    return answer();
  }

  void begin(std::string_view method, std::string_view target, std::uint64_t length) {
    send_all(head_of(method, target, length));
  }

  void send_all(std::string_view data) {
    while (!data.empty()) {
      ssize_t sent = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) throw std::runtime_error("the server closed the connection");
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  Answer answer() {
    std::uint64_t length = head();
    while (rest_.size() < length) more();
    Answer result{status_, rest_.substr(0, length)};
    rest_.erase(0, length);
    return result;
  }

  // The answer's body is looked at by nobody; gives its length.
  std::uint64_t skip_answer() {
    std::uint64_t length = head();
    std::uint64_t seen = rest_.size();
    rest_.clear();
    std::vector<char> buffer(256 * 1024);
    while (seen < length) {
      ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got <= 0) throw std::runtime_error("the body ended early");
      seen += static_cast<std::uint64_t>(got);
    }
    return length;
  }

  int status() const { return status_; }

 private:
  static std::string head_of(std::string_view method, std::string_view target,
                             std::uint64_t length) {
    static const std::string key = std::getenv("AGENT_SANDBOX_ADMIN_KEY");
    return fmt::format(
        "{} {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n"
        "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        method, target, key, length);
  }

  void more() {
    char buffer[16384];
    ssize_t got = ::recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) throw std::runtime_error("the server closed the connection");
    rest_.append(buffer, static_cast<std::size_t>(got));
  }

  // Reads up to the end of the head; gives the length of what follows.
  std::uint64_t head() {
    std::size_t end = 0;
    while ((end = rest_.find("\r\n\r\n")) == std::string::npos) more();
    std::string lines = rest_.substr(0, end + 2);
    rest_.erase(0, end + 4);
    status_ = std::atoi(lines.c_str() + lines.find(' '));
    std::size_t at = lines.find("Content-Length: ");
    return at == std::string::npos ? 0 : std::strtoull(lines.c_str() + at + 16, nullptr, 10);
  }

  int fd_ = -1;
  int status_ = 0;
  std::string rest_;
};

inline void expect(const Answer& answer, int status) {
  if (answer.status != status)
    throw std::runtime_error(
        fmt::format("{} instead of {}: {}", answer.status, status, answer.body.substr(0, 300)));
}

inline std::string id_in(const Answer& answer) {
  std::size_t at = answer.body.find("\"session_id\":\"");
  if (at == std::string::npos) throw std::runtime_error("no session_id");
  return answer.body.substr(at + 14, 33);
}

inline std::string create(Connection& connection, std::string_view body = "{}") {
  Answer made = connection.call("POST", "/api/sessions", body);
  expect(made, 201);
  return id_in(made);
}

inline void remove(Connection& connection, const std::string& id) {
  expect(connection.call("DELETE", "/api/sessions/" + id), 204);
}

template <class Work>
void with_clients(unsigned clients, Work work) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < clients; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

// Each client has a descriptor.
inline void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace bench
