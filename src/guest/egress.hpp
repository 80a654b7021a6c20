// The door for connections that are to leave the sandbox: accepted here, handed to the daemon,
// which decides about them. Nothing is read from them inside.
//
// No more come out than the daemon asked for, and no more per second than a busy program needs; the
// rest waits in the kernel's queue, or is refused there.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

class Egress {
 public:
  using Clock = std::chrono::steady_clock;

  Egress() = default;  // Nobody listens.
  // Before any program runs: whoever is first has the port.
  static Result<Egress> listen(std::uint16_t port);

  void accept_more(std::uint32_t count);
  void reset() noexcept { allowed_ = 0; }  // The daemon that asked is gone.

  // The socket to wait on, or -1 while nothing may be accepted.
  int waits_on(Clock::time_point now);
  // How long until something may be; negative: it does not depend on time.
  std::chrono::milliseconds sleep() const;
  std::vector<UniqueFd> accept();

 private:
  void refill(Clock::time_point now);

  UniqueFd listener_;
  std::uint32_t allowed_ = 0;
  std::uint32_t tokens_ = 0;
  Clock::time_point refilled_;
};

}  // namespace asr
