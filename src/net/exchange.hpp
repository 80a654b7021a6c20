// One request and its answer, as the rest of the program meets them.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/http.hpp"

namespace asr {

namespace asio = boost::asio;

// Messages both ways. One coroutine may read while another writes; no two may do the same.
class WebSocket {
 public:
  struct Message {
    bool binary = false;
    std::string data;
  };

  virtual ~WebSocket() = default;
  // The next message; nothing when the other side has closed.
  virtual asio::awaitable<Result<std::optional<Message>>> read() = 0;
  virtual asio::awaitable<Result<void>> write(Message message) = 0;
  virtual asio::awaitable<void> close(std::uint16_t code, std::string reason) = 0;
  virtual void abort() noexcept = 0;  // at once, without a word; whatever waits here fails
};

// Bytes both ways, after an exchange was taken over. What had already been read comes first.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual asio::awaitable<Result<std::size_t>> read_some(std::span<char> buffer) = 0;  // 0: end
  virtual asio::awaitable<Result<void>> write(std::span<const char> data) = 0;
  virtual void shut_down_write() noexcept = 0;
  virtual void close() noexcept = 0;
};

// Ends with one of: respond(), begin() … end(), upgrade(), take_over().
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const RequestHead& head() const noexcept = 0;

  // The body in parts; 0 when it has ended. Asks the client to go on if it waits for that.
  virtual asio::awaitable<Result<std::size_t>> read_some(std::span<char> buffer) = 0;
  // All of it; more than `most` is Errc::exhausted.
  virtual asio::awaitable<Result<std::string>> read_body(std::size_t most) = 0;

  // Goes with whatever is answered.
  virtual void always_send(std::string name, std::string value) = 0;
  virtual asio::awaitable<Result<void>> respond(Response response) = 0;

  // An answer in parts: of a length known beforehand, or until end().
  virtual asio::awaitable<Result<void>> begin(Response head,
                                              std::optional<std::uint64_t> length) = 0;
  virtual asio::awaitable<Result<void>> write(std::string data) = 0;
  // write() and end() at once: one packet less where every one counts.
  virtual asio::awaitable<Result<void>> write_last(std::string data) = 0;
  // The head of the next begin() goes with the first bytes of the answer, which come soon; write()
  // of nothing sends it alone.
  virtual void hold_head() noexcept = 0;
  // Whether the client has not closed its side. Asks the kernel, reads nothing.
  virtual bool is_client_there() noexcept = 0;
  // `length` bytes of a file from `offset` on, without passing through this process where the
  // connection allows it.
  virtual asio::awaitable<Result<void>> send_file(int file, std::uint64_t offset,
                                                  std::uint64_t length) = 0;
  virtual asio::awaitable<Result<void>> end() = 0;

  virtual bool wants_websocket() const noexcept = 0;
  // `protocol`: of those the client offered, or empty. `most`: bytes of one message.
  virtual asio::awaitable<Result<std::unique_ptr<WebSocket>>> upgrade(std::string protocol,
                                                                      std::size_t most) = 0;
  virtual std::unique_ptr<ByteStream> take_over() = 0;

  virtual bool has_answered() const noexcept = 0;  // or begun to
};

}  // namespace asr
