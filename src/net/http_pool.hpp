// HTTP from the client's side, by curl, for coroutines: many requests at once over connections that
// are kept, bodies in parts both ways, and a limit to every wait. One thread of its own does the
// work; nobody else waits for a socket.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "net/http.hpp"

namespace asr {

namespace asio = boost::asio;

struct HttpPoolSettings {
  std::size_t most_connections = 512;  // at once; what is more waits
  std::size_t most_idle = 32;          // that are kept though nobody uses them
  // Older ones are not used again: the other side may be about to close them.
  std::chrono::seconds idle_time{20};
};

struct PooledRequest {
  std::string method = "GET";
  std::string url;
  Headers headers;
  std::string body;
  bool body_follows = false;  // instead of `body`: HttpTransfer::write() has it
  // Sent again on another connection when the first turns out to be dead. Without it a request
  // reaches the server at most once.
  bool may_repeat = false;
  std::chrono::milliseconds connect_time{10'000};
  std::chrono::milliseconds total_time{0};  // 0: as long as it takes
  std::chrono::seconds silence{0};          // Given up when nothing moves for so long; 0: never.
  std::string unix_socket;                  // where the server listens, instead of the URL's host
};

// One request and its answer, under way. Dropping it gives it up. On the thread of the pool's
// executor, by one coroutine in each direction.
class HttpTransfer {
 public:
  struct Head {
    unsigned status = 0;
    Headers headers;
  };

  virtual ~HttpTransfer() = default;
  // Errors before the answer has begun, and those after it, are Errc::os or Errc::timeout.
  virtual asio::awaitable<Result<Head>> head() = 0;
  // The next part of the answer; empty when there is no more. What is not asked for waits at the
  // server.
  virtual asio::awaitable<Result<std::string>> read() = 0;
  // A part of the request, with body_follows; waits while those before have not been sent.
  virtual asio::awaitable<Result<void>> write(std::string data) = 0;
  virtual void end_body() = 0;
  virtual void cancel() = 0;
  // After an error: nothing of the request can have reached the server.
  virtual bool was_never_sent() const = 0;
};

struct PooledResponse {
  unsigned status = 0;
  Headers headers;
  std::string body;
};

class HttpPool {
 public:
  // Makes a thread.
  explicit HttpPool(asio::any_io_executor executor, HttpPoolSettings settings = {});
  ~HttpPool();  // Gives up what is under way.
  HttpPool(const HttpPool&) = delete;
  HttpPool& operator=(const HttpPool&) = delete;

  std::shared_ptr<HttpTransfer> open(PooledRequest request);
  // Ends the thread. What is under way, or begun later, never comes to an end.
  void stop();

 private:
  class Worker;
  asio::any_io_executor executor_;
  std::shared_ptr<Worker> worker_;
};

// All of an answer. More than `most` bytes are Errc::exhausted.
asio::awaitable<Result<PooledResponse>> read_all(std::shared_ptr<HttpTransfer> transfer,
                                                 std::size_t most);

}  // namespace asr
