// HTTP from the client's side, by curl, one request after the other over a kept connection. Blocks:
// for the command line, and for threads that may wait.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/http.hpp"

namespace asr {

struct ClientRequest {
  std::string method = "GET";
  std::string url;
  Headers headers;
  std::string body;
  // Instead of `body`: fills the buffer and says how much it put there; 0 ends. A length of -1 is
  // not known beforehand.
  std::function<std::size_t(char* buffer, std::size_t size)> read_body;
  std::int64_t body_length = -1;
  // Sees the answer's status and headers as soon as they have come: its body may never end well.
  std::function<void(unsigned status, const Headers& headers)> see_head;
  // Gets the answer's body piece by piece if its status is below 300; false stops.
  std::function<bool(std::string_view)> write_body;
  std::chrono::milliseconds connect_time{10000};
  std::chrono::milliseconds total_time{0};  // 0: as long as it takes
  // Asked about once a second, on the thread that sends; false gives up.
  std::function<bool()> go_on;
  // On a connection of its own. One that was used before may turn out to be dead; then the request
  // is sent again, although a server that died may have taken it.
  bool only_once = false;
  std::string ca_file;  // trusted beside the system's own
  // Where `host` is to be found, whatever the name service says by then.
  struct Pin {
    std::string host;
    std::uint16_t port = 0;
    std::string address;
  };
  std::optional<Pin> pin;
};

struct ClientResponse {
  unsigned status = 0;
  Headers headers;
  std::string body;  // Bounded, and what write_body did not get.
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;

  Result<ClientResponse> send(const ClientRequest& request);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace asr
