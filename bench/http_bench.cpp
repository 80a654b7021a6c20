// Measures a running server from outside, over plain sockets, and prints one JSON object. Judges
// nothing: run.py compares.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<std::int64_t>;  // nanoseconds

struct Options {
  std::string mode;
  std::uint16_t port = 0;
  unsigned count = 100;
  unsigned clients = 64;
  double seconds = 10;
  std::uint64_t bytes = 1ULL << 30;
  unsigned pause_ms = 0;
};

std::int64_t since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

std::string json_list(const Times& times) { return fmt::format("[{}]", fmt::join(times, ", ")); }

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

void expect(const Answer& answer, int status) {
  if (answer.status != status)
    throw std::runtime_error(
        fmt::format("{} instead of {}: {}", answer.status, status, answer.body.substr(0, 300)));
}

std::string id_in(const Answer& answer) {
  std::size_t at = answer.body.find("\"session_id\":\"");
  if (at == std::string::npos) throw std::runtime_error("no session_id");
  return answer.body.substr(at + 14, 33);
}

// A loop of commands needs more than half a core.
constexpr std::string_view kAllCores = R"({"limits":{"cpus":64}})";
constexpr std::string_view kTrue = R"({"argv":["/bin/true"]})";

std::string create(Connection& connection, std::string_view body = "{}") {
  Answer made = connection.call("POST", "/api/sessions", body);
  expect(made, 201);
  return id_in(made);
}

void remove(Connection& connection, const std::string& id) {
  expect(connection.call("DELETE", "/api/sessions/" + id), 204);
}

void run_true(Connection& connection, const std::string& id) {
  Answer done = connection.call("POST", "/api/sessions/" + id + "/commands", kTrue);
  expect(done, 200);
  if (done.body.find("\"exit_code\":0") == std::string::npos)
    throw std::runtime_error("/bin/true: " + done.body.substr(0, 300));
}

// ---- the measurements
// -----------------------------------------------------------------------------

// One after the other, with time for the pool to fill again.
std::string measure_create(const Options& options) {
  Connection connection(options.port);
  Times create_ns;
  Times delete_ns;
  for (unsigned i = 0; i < options.count; ++i) {
    auto start = Clock::now();
    std::string id = create(connection);
    create_ns.push_back(since(start));
    start = Clock::now();
    remove(connection, id);
    delete_ns.push_back(since(start));
    std::this_thread::sleep_for(std::chrono::milliseconds(options.pause_ms));
  }
  return fmt::format(R"({{"create_ns": {}, "delete_ns": {}}})", json_list(create_ns),
                     json_list(delete_ns));
}

std::string measure_exec(const Options& options) {
  Connection connection(options.port);
  std::string id = create(connection, kAllCores);
  Times exec_ns;
  for (unsigned i = 0; i < options.count + 5; ++i) {
    auto start = Clock::now();
    run_true(connection, id);
    if (i >= 5) exec_ns.push_back(since(start));
  }
  remove(connection, id);
  return fmt::format(R"({{"exec_ns": {}}})", json_list(exec_ns));
}

template <class Work>
void with_clients(unsigned clients, Work work) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < clients; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

// Each client makes, uses and removes sessions until the time is over.
std::string measure_churn(const Options& options) {
  std::atomic<unsigned> errors = 0;
  std::vector<Times> cycles(options.clients);
  std::barrier ready(static_cast<std::ptrdiff_t>(options.clients) + 1);
  Clock::time_point start;
  auto work = [&](unsigned number) {
    Connection connection(options.port);
    ready.arrive_and_wait();
    auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    while (Clock::now() < end) {
      try {
        auto began = Clock::now();
        std::string id = create(connection, kAllCores);
        run_true(connection, id);
        remove(connection, id);
        cycles[number].push_back(since(began));
      } catch (const std::exception& problem) {
        std::fprintf(stderr, "http_bench: %s\n", problem.what());
        ++errors;
        return;
      }
    }
  };
  std::thread all([&] { with_clients(options.clients, work); });
  ready.arrive_and_wait();
  start = Clock::now();
  all.join();
  double took = static_cast<double>(since(start)) / 1e9;
  Times together;
  for (const Times& one : cycles) together.insert(together.end(), one.begin(), one.end());
  return fmt::format(R"({{"per_second": {:.1f}, "cycle_ns": {}, "errors": {}, "clients": {}}})",
                     static_cast<double>(together.size()) / took, json_list(together),
                     errors.load(), options.clients);
}

// All at once, each over a connection of its own.
std::string measure_burst(const Options& options) {
  std::vector<std::string> ids(options.count);
  Times times(options.count);
  std::atomic<unsigned> errors = 0;
  std::barrier ready(static_cast<std::ptrdiff_t>(options.count));
  std::atomic<std::int64_t> last = 0;
  Clock::time_point start;
  with_clients(options.count, [&](unsigned number) {
    try {
      Connection connection(options.port);
      ready.arrive_and_wait();
      if (number == 0) start = Clock::now();
      auto began = Clock::now();
      ids[number] = create(connection);
      times[number] = since(began);
      std::int64_t now = times[number];
      std::int64_t seen = last.load();
      while (now > seen && !last.compare_exchange_weak(seen, now)) {
      }
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "http_bench: %s\n", problem.what());
      ++errors;
    }
  });
  Connection connection(options.port);
  for (const std::string& id : ids)
    if (!id.empty()) remove(connection, id);
  return fmt::format(R"({{"last_ns": {}, "create_ns": {}, "errors": {}}})", last.load(),
                     json_list(times), errors.load());
}

std::string measure_transfer(const Options& options) {
  Connection connection(options.port);
  std::uint64_t mib = options.bytes >> 20;
  std::string id =
      create(connection, fmt::format(R"({{"limits":{{"memory":"{}M","disk":"{}M","cpus":64}}}})",
                                     2 * mib + 256, mib + 64));
  std::string target = "/api/sessions/" + id + "/files?path=/workspace/data";
  std::string block(1 << 20, '\0');
  auto start = Clock::now();
  connection.begin("PUT", target, mib << 20);
  for (std::uint64_t i = 0; i < mib; ++i) connection.send_all(block);
  expect(connection.answer(), 200);
  std::int64_t up = since(start);
  start = Clock::now();
  connection.begin("GET", target, 0);
  std::uint64_t length = connection.skip_answer();
  std::int64_t down = since(start);
  remove(connection, id);
  return fmt::format(R"({{"up_ns": {}, "down_ns": {}, "bytes": {}}})", up, down, length);
}

int measure(const Options& options) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::string report = options.mode == "create"  ? measure_create(options)
                       : options.mode == "exec"  ? measure_exec(options)
                       : options.mode == "churn" ? measure_churn(options)
                       : options.mode == "burst" ? measure_burst(options)
                                                 : measure_transfer(options);
  fmt::print("{}\n", report);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Measures a server; prints JSON. Its admin key is in AGENT_SANDBOX_ADMIN_KEY.");
  app.add_option("mode", options.mode)
      ->required()
      ->check(CLI::IsMember({"create", "exec", "churn", "burst", "transfer"}));
  app.add_option("--port", options.port)->required();
  app.add_option("--count", options.count, "How often, or how many at once (burst)");
  app.add_option("--clients", options.clients, "Connections side by side (churn)");
  app.add_option("--seconds", options.seconds, "How long (churn)");
  app.add_option("--bytes", options.bytes, "How much (transfer)");
  app.add_option("--pause-ms", options.pause_ms, "Between two (create)");
  CLI11_PARSE(app, argc, argv);
  if (!std::getenv("AGENT_SANDBOX_ADMIN_KEY"))
    throw std::runtime_error("AGENT_SANDBOX_ADMIN_KEY is not set");
  return measure(options);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "http_bench: %s\n", failure.what());
  return 1;
}
