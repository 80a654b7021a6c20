// What pid 1 has said and the daemon has not room for yet. Pid 1 never waits for a reader: there
// may be none for minutes, and meanwhile it reaps, keeps time and enforces limits as ever.
//
// It stays small: while anything waits here, no new request is read.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "wire/frame.hpp"

namespace asr {

class Outbox {
 public:
  explicit Outbox(int socket) : socket_(socket) {}

  // An error only for what can never be sent; a daemon that is gone is noticed by flush() or by
  // reading.
  template <class Message>
  Result<void> send(std::uint32_t id, const Message& message, std::vector<UniqueFd> fds = {}) {
    return send(Packet{encode(id, message), std::move(fds)});
  }

  bool empty() const noexcept { return packets_.empty(); }
  // Sends what there is room for. False when the daemon is gone.
  bool flush();
  // For a forked child, which must not hold descriptors that are on their way out.
  void drop() { packets_.clear(); }

 private:
  struct Packet {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  Result<void> send(Packet packet);
  Result<void> attempt(const Packet& packet) const;

  int socket_;
  std::deque<Packet> packets_;
};

}  // namespace asr
