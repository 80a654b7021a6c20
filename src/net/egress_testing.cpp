#include "net/egress_testing.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "base/id.hpp"

namespace asr::test {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

std::pair<UniqueFd, std::uint16_t> listen_anywhere() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 128) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("cannot listen");
  return {std::move(listener), ntohs(address.sin_port)};
}

}  // namespace

UniqueFd connect_to(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("cannot connect");
  return fd;
}

std::pair<UniqueFd, UniqueFd> tcp_pair() {
  auto [listener, port] = listen_anywhere();
  UniqueFd client = connect_to(port);
  UniqueFd served(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return {std::move(client), std::move(served)};
}

Peer::Peer(UniqueFd fd) : fd_(std::move(fd)) {
  timeval limit{10, 0};
  int one = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Peer::~Peer() {
  if (ssl_) ::SSL_shutdown(ssl_.get());
}

bool Peer::send(std::string_view data) {
  while (!data.empty()) {
    long n = ssl_ ? ::SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()))
                  : ::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

long Peer::raw_read(char* data, std::size_t size) {
  return ssl_ ? ::SSL_read(ssl_.get(), data, static_cast<int>(size))
              : ::recv(fd_.get(), data, size, 0);
}

std::string Peer::read_some() {
  if (!rest_.empty()) return std::exchange(rest_, {});
  std::string block(65536, '\0');
  long n = raw_read(block.data(), block.size());
  block.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return block;
}

std::string Peer::read_until(std::string_view marker) {
  std::string text = std::exchange(rest_, {});
  std::size_t searched = 0;
  for (;;) {
    std::size_t at = text.find(marker, searched);
    if (at != std::string::npos) {
      rest_ = text.substr(at + marker.size());
      text.resize(at + marker.size());
      return text;
    }
    std::string more = read_some();
    if (more.empty()) return text;
    searched = text.size() - std::min(text.size(), marker.size());
    text += more;
  }
}

std::string Peer::read_to_end() {
  std::string text;
  for (std::string more = read_some(); !more.empty(); more = read_some()) text += more;
  return text;
}

std::string Peer::read_answer() {
  std::string head = read_until("\r\n\r\n");
  std::string lower = head;
  std::transform(lower.begin(), lower.end(), lower.begin(), ::tolower);
  if (lower.find("transfer-encoding: chunked") != std::string::npos)
    return head + read_until("0\r\n\r\n");
  std::size_t at = lower.find("content-length: ");
  if (at == std::string::npos) return head;
  std::size_t length = std::stoul(lower.substr(at + 16));
  std::string body;
  while (body.size() < length) {
    std::string more = read_some();
    if (more.empty()) break;
    body += more;
  }
  if (body.size() > length) rest_ = body.substr(length);
  return head + body.substr(0, length);
}

bool Peer::is_at_end() { return read_some().empty(); }

void Peer::shut_down() { ::shutdown(fd_.get(), SHUT_WR); }

std::string Peer::start_tls(Offer offer) {
  context_.reset(::SSL_CTX_new(::TLS_client_method()));
  if (!offer.authority.empty()) {
    std::unique_ptr<BIO, void (*)(BIO*)> pem(
        ::BIO_new_mem_buf(offer.authority.data(), static_cast<int>(offer.authority.size())),
        ::BIO_free_all);
    std::unique_ptr<X509, void (*)(X509*)> authority(
        ::PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr), ::X509_free);
    ::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context_.get()), authority.get());
    ::SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  }
  ssl_.reset(::SSL_new(context_.get()));
  std::string verified = offer.verify_name.empty() ? offer.server_name : offer.verify_name;
  if (!offer.server_name.empty()) SSL_set_tlsext_host_name(ssl_.get(), offer.server_name.c_str());
  if (!verified.empty()) ::SSL_set1_host(ssl_.get(), verified.c_str());
  ::X509_VERIFY_PARAM_set_flags(::SSL_get0_param(ssl_.get()), X509_V_FLAG_X509_STRICT);
  if (!offer.protocols.empty())
    ::SSL_set_alpn_protos(ssl_.get(),
                          reinterpret_cast<const unsigned char*>(offer.protocols.data()),
                          static_cast<unsigned>(offer.protocols.size()));
  ::SSL_set_fd(ssl_.get(), fd_.get());
  if (::SSL_connect(ssl_.get()) == 1) return "";
  long verdict = ::SSL_get_verify_result(ssl_.get());
  std::string why = verdict != X509_V_OK ? ::X509_verify_cert_error_string(verdict) : "no TLS";
  ssl_.reset();
  return why;
}

std::string Peer::protocol() const {
  const unsigned char* data = nullptr;
  unsigned size = 0;
  ::SSL_get0_alpn_selected(ssl_.get(), &data, &size);
  return std::string(reinterpret_cast<const char*>(data), size);
}

bool Peer::accept_tls(boost::asio::ssl::context& context) {
  ssl_.reset(::SSL_new(context.native_handle()));
  ::SSL_set_fd(ssl_.get(), fd_.get());
  if (::SSL_accept(ssl_.get()) == 1) return true;
  ssl_.reset();
  return false;
}

std::string client_hello(const std::string& name) {
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(::SSL_CTX_new(::TLS_client_method()),
                                                       ::SSL_CTX_free);
  std::unique_ptr<SSL, void (*)(SSL*)> ssl(::SSL_new(context.get()), ::SSL_free);
  BIO* out = ::BIO_new(::BIO_s_mem());
  ::SSL_set_bio(ssl.get(), ::BIO_new(::BIO_s_mem()), out);
  if (!name.empty()) SSL_set_tlsext_host_name(ssl.get(), name.c_str());
  ::SSL_set_connect_state(ssl.get());
  ::SSL_do_handshake(ssl.get());
  std::string bytes(4096, '\0');
  bytes.resize(static_cast<std::size_t>(::BIO_read(out, bytes.data(), 4096)));
  return bytes;
}

Server::Server(Handler handler, std::shared_ptr<boost::asio::ssl::context> tls)
    : handler_(std::move(handler)), tls_(std::move(tls)) {
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without asking for silence.
  std::tie(listener_, port_) = listen_anywhere();
  acceptor_ = std::thread([this] { run(); });
}

Server::~Server() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
}

void Server::run() {
  while (!stopping_) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) continue;
    ++accepted_;
    threads_.emplace_back([this, held = fd.release()] {
      Peer peer{UniqueFd(held)};
      if (!tls_ || peer.accept_tls(*tls_)) handler_(peer);
    });
  }
}

EchoServer::EchoServer(std::shared_ptr<boost::asio::ssl::context> tls, std::string more_headers)
    : more_headers_(std::move(more_headers)),
      server_(
          [this](Peer& peer) {
            for (;;) {
              std::string head = peer.read_until("\r\n\r\n");
              if (!head.ends_with("\r\n\r\n")) return;
              {
                std::lock_guard lock(mutex_);
                requests_.push_back(head);
              }
              std::string answer = "HTTP/1.1 200 OK\r\n" + more_headers_ +
                                   "Content-Length: " + std::to_string(head.size()) + "\r\n\r\n";
              if (!head.starts_with("HEAD")) answer += head;
              if (!peer.send(answer)) return;
              if (head.find("Connection: close") != std::string::npos) return;
            }
          },
          std::move(tls)) {}

std::vector<std::string> EchoServer::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

TrustFile::TrustFile(const std::string& pem)
    : path_(std::filesystem::temp_directory_path() / ("agent-sandbox-trust-" + random_name(12))) {
  std::ofstream(path_) << pem;
}

TrustFile::~TrustFile() { std::filesystem::remove(path_); }

}  // namespace asr::test
