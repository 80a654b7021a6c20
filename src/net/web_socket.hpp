// The server's side of a WebSocket, after its handshake. For the files of this folder alone.
#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>

#include "net/http_connection.hpp"

namespace asr {

using UpgradeRequest = beast::http::request<beast::http::empty_body>;

asio::awaitable<Result<std::unique_ptr<WebSocket>>> open_web_socket(PlainStream stream,
                                                                    UpgradeRequest request,
                                                                    std::string protocol,
                                                                    std::size_t most);
asio::awaitable<Result<std::unique_ptr<WebSocket>>> open_web_socket(TlsStream stream,
                                                                    UpgradeRequest request,
                                                                    std::string protocol,
                                                                    std::size_t most);

}  // namespace asr
