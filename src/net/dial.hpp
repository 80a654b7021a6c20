// A connection to a server that somebody set up, as bytes: with TLS where its URL says https.
#pragma once

#include <memory>
#include <string>

#include "net/egress_dialer.hpp"
#include "net/exchange.hpp"

namespace asr {

// Where a URL leads, without its path.
struct ServerAddress {
  bool tls = false;
  HostAndPort server;
  std::string authority;  // as a Host header has it
};
// "http://host[:port]" or "https://…", whatever follows.
Result<ServerAddress> server_of_url(std::string_view url);

// The dialer outlives the connection.
asio::awaitable<Result<std::shared_ptr<ByteStream>>> dial_server(EgressDialer* dialer,
                                                                 ServerAddress where);

// One end of a pair of sockets as bytes: its other end is somebody's descriptor.
Result<std::shared_ptr<ByteStream>> stream_of(asio::any_io_executor executor, UniqueFd socket);

}  // namespace asr
