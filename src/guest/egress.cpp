#include "guest/egress.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr int kBacklog = 128;
constexpr std::uint32_t kMostAllowed = 1024;
// At once, and per second after that.
constexpr std::uint32_t kBurst = 64;
constexpr std::uint32_t kPerSecond = 500;
constexpr std::chrono::microseconds kEach{1'000'000 / kPerSecond};

}  // namespace

Result<Egress> Egress::listen(std::uint16_t port) {
  Egress egress;
  egress.listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!egress.listener_) return fail_errno("socket");
  // Neither SO_REUSEADDR nor SO_REUSEPORT: with them a program could listen beside us.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(egress.listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("bind");
  if (::listen(egress.listener_.get(), kBacklog) != 0) return fail_errno("listen");
  egress.tokens_ = kBurst;
  egress.refilled_ = Clock::now();
  return egress;
}

void Egress::accept_more(std::uint32_t count) {
  allowed_ = std::min(kMostAllowed, allowed_ + std::min(count, kMostAllowed));
}

void Egress::refill(Clock::time_point now) {
  auto earned = static_cast<std::uint64_t>((now - refilled_) / kEach);
  if (earned == 0) return;
  tokens_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(kBurst, tokens_ + earned));
  refilled_ = now;
}

int Egress::waits_on(Clock::time_point now) {
  if (!listener_ || allowed_ == 0) return -1;
  refill(now);
  return tokens_ > 0 ? listener_.get() : -1;
}

std::chrono::milliseconds Egress::sleep() const {
  bool tired = listener_ && allowed_ > 0 && tokens_ == 0;
  return tired ? std::chrono::ceil<std::chrono::milliseconds>(kEach) : -1ms;
}

std::vector<UniqueFd> Egress::accept() {
  std::vector<UniqueFd> accepted;
  while (allowed_ > 0 && tokens_ > 0) {
    UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // None left, or no descriptor for it: the next round is soon enough.
    if (!connection) break;
    --allowed_;
    --tokens_;
    accepted.push_back(std::move(connection));
  }
  return accepted;
}

}  // namespace asr
