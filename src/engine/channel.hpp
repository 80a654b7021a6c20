// Requests and answers over one seqpacket socket, as coroutines. Everything here runs on the
// channel's strand; the peer is not trusted, and whatever it sends that makes no sense ends the
// channel.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "wire/frame.hpp"
#include "wire/send.hpp"

namespace asr {

namespace asio = boost::asio;

// One frame as it came.
struct Letter {
  std::uint16_t type = 0;
  std::uint32_t id = 0;
  std::string body;
  std::vector<UniqueFd> fds;
  bool lost_descriptors = false;  // It brought some, and the daemon had no room for them.

  template <class Message>
  std::optional<Message> as() const {
    if (lost_descriptors) return std::nullopt;
    return decode<Message>(Frame{type, id, body});
  }
};

// The daemon's own failure, whatever the letter says.
inline Error out_of_descriptors() {
  return Error(Errc::exhausted, "this process has too many open files",
               "raise its limit (ulimit -n), or hold fewer sandboxes");
}

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using Clock = std::chrono::steady_clock;

  // `epoch` tells the requests of one life of the daemon from those of another: an answer that an
  // earlier one did not live to read is nobody's.
  Channel(asio::any_io_executor strand, UniqueFd socket, std::uint32_t epoch = 0);

  // Starts reading. `unasked` gets letters that answer no open box; `closed` is called once.
  void open(std::function<void(Letter)> unasked, std::function<void()> closed);
  void close();
  bool is_open() const noexcept { return open_; }
  const asio::any_io_executor& executor() const noexcept { return strand_; }

  // Answers to one request, in order. Closed with the object.
  class Box {
   public:
    Box(std::shared_ptr<Channel> channel, std::uint32_t id);
    ~Box();
    Box(const Box&) = delete;
    Box& operator=(const Box&) = delete;

    std::uint32_t id() const noexcept { return id_; }
    // For answers that may be lost: what does not fit is dropped instead of ending the channel, and
    // the next call of lost() says so.
    void allow_loss() noexcept { lossy_ = true; }
    bool lost() noexcept { return std::exchange(lost_, false); }
    asio::awaitable<Result<Letter>> next(Clock::time_point deadline = Clock::time_point::max());
    // Nothing more will come, it is known: next() says Errc::not_found once it is empty.
    void give_up();

   private:
    friend class Channel;
    std::shared_ptr<Channel> channel_;
    std::uint32_t id_;
    bool is_full() const noexcept;
    std::deque<Letter> letters_;
    std::size_t bytes_ = 0;
    std::size_t descriptors_ = 0;
    bool lossy_ = false;
    bool lost_ = false;
    bool given_up_ = false;
    asio::steady_timer bell_;
  };
  std::unique_ptr<Box> box();
  std::unique_ptr<Box> box_for_unasked();          // Letters with id 0, from before open() on.
  std::unique_ptr<Box> box_for(std::uint32_t id);  // Of a request that an earlier life made.

  UniqueFd copy_socket() const;  // Nothing if the channel is closed or there is no room.

  template <class Message>
  Result<void> send(std::uint32_t id, const Message& message, std::span<const int> fds = {}) {
    if (!open_) return fail(Errc::gone, "the sandbox has ended");
    auto sent = send_packet(socket_.get(), encode(id, message), fds, Wait::dont_block);
    if (sent || sent.error().code == Errc::invalid) return sent;
    if (sent.error().code == Errc::exhausted)
      return fail(Errc::exhausted, "too many requests at once",
                  "wait for answers before asking more");
    close();  // The peer is gone, and we are the first to notice.
    return fail(Errc::gone, "the sandbox has ended");
  }

 private:
  asio::awaitable<void> read_letters();
  bool take();

  asio::any_io_executor strand_;
  UniqueFd socket_;
  asio::posix::stream_descriptor readable_;  // A copy of the socket, to wait on.
  std::map<std::uint32_t, Box*> boxes_;
  std::uint32_t epoch_;
  std::uint32_t last_ = 0;  // within the epoch
  std::function<void(Letter)> unasked_;
  std::function<void()> closed_;
  bool open_ = true;
};

}  // namespace asr
