// Both ends of a proxy, for tests: programs that speak to it, servers that it speaks to. Blocking,
// on threads of their own, so that no proxy is tested with its own code.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "net/authority.hpp"

namespace asr::test {

// Two ends of a TCP connection over loopback.
std::pair<UniqueFd, UniqueFd> tcp_pair();
UniqueFd connect_to(std::uint16_t port);

// One end of a connection; every wait ends after ten seconds.
class Peer {
 public:
  explicit Peer(UniqueFd fd);
  ~Peer();
  Peer(Peer&&) noexcept = default;

  bool send(std::string_view data);
  std::string read_some();                          // empty at its end
  std::string read_until(std::string_view marker);  // with it; less at its end
  std::string read_to_end();
  std::string read_answer();  // a head and the body of the length it announces, or its chunks
  bool is_at_end();           // nothing more comes
  void shut_down();
  void reset() { fd_.reset(); }

  // TLS from here on, as a client that trusts `authority` (PEM) alone; the error if it fails.
  struct Offer {
    std::string server_name;  // empty: none
    std::string authority;
    std::string verify_name;  // empty: as server_name
    std::string protocols;    // ALPN in its own form: "\x02h2"
  };
  std::string start_tls(Offer offer);
  std::string protocol() const;  // that ALPN chose
  // The same as a server.
  bool accept_tls(boost::asio::ssl::context& context);

 private:
  long raw_read(char* data, std::size_t size);
  UniqueFd fd_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, ::SSL_free};
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{nullptr, ::SSL_CTX_free};
  std::string rest_;
};

// What a client says first, with `name` and whatever else OpenSSL says.
std::string client_hello(const std::string& name);

// Each connection is handled on a thread of its own.
class Server {
 public:
  using Handler = std::function<void(Peer&)>;
  explicit Server(Handler handler, std::shared_ptr<boost::asio::ssl::context> tls = nullptr);
  ~Server();

  std::uint16_t port() const noexcept { return port_; }
  int accepted() const noexcept { return accepted_; }

 private:
  void run();
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  Handler handler_;
  std::shared_ptr<boost::asio::ssl::context> tls_;
  std::atomic<int> accepted_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Answers every request with its own head, and remembers it.
class EchoServer {
 public:
  explicit EchoServer(std::shared_ptr<boost::asio::ssl::context> tls = nullptr,
                      std::string more_headers = {});
  std::uint16_t port() const noexcept { return server_.port(); }
  std::vector<std::string> requests() const;
  int accepted() const noexcept { return server_.accepted(); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::string more_headers_;
  Server server_;
};

// A PEM file that goes with the object.
class TrustFile {
 public:
  explicit TrustFile(const std::string& pem);
  ~TrustFile();
  TrustFile(const TrustFile&) = delete;
  TrustFile& operator=(const TrustFile&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace asr::test
