// Hands one request on to a server somewhere else, and its answer back. The other server is not
// trusted: its heads are bounded, its words about connections are not passed on.
#pragma once

#include <functional>
#include <string>

#include "base/unique_fd.hpp"
#include "net/cutoff.hpp"
#include "net/exchange.hpp"

namespace asr {

enum class Direction { up, down };  // to the server, from the server

struct ProxyRules {
  std::string target;  // path and query to ask for
  // Sent on top of the client's, instead of those of the same name.
  Headers request_headers;
  // Not sent on: the keys to this server.
  std::vector<std::string> secret_headers;
  Headers response_headers;     // added to the answer
  std::function<void()> alive;  // called when something went through
  // Gets the bytes that go through; false ends it.
  std::function<bool(Direction, std::size_t)> count;
  std::shared_ptr<Cutoff> cutoff;                        // ends it from outside
  std::string server = "the server inside the session";  // in errors
  enum class Cookies { without_domain, unchanged };
  Cookies cookies = Cookies::without_domain;
  // Texts that no header of the answer may show.
  std::vector<std::string> masked;
  std::chrono::seconds head_time{120};
  std::chrono::seconds idle_time{300};
};

// `upstream`: a connected TCP socket. An error before anything was answered is the caller's to
// tell; afterwards the connection is simply closed.
asio::awaitable<Result<void>> proxy_exchange(Exchange* exchange, asio::any_io_executor executor,
                                             UniqueFd upstream, ProxyRules rules);

// Copies bytes both ways, `up` from one to the other, until both sides have ended, `count` says so,
// or nothing moved for `idle_time`.
asio::awaitable<void> join_streams(std::shared_ptr<ByteStream> one,
                                   std::shared_ptr<ByteStream> other,
                                   asio::any_io_executor executor,
                                   std::function<bool(Direction, std::size_t)> count,
                                   std::chrono::seconds idle_time);

// Removes what belongs to one connection only, and what Connection names.
void remove_hop_by_hop(Headers& headers);
// "Domain=…" of a cookie is none of an inner server's business.
std::string without_domain(std::string_view cookie);

}  // namespace asr
