// proxy_exchange() over a stream that is open already. Shows Beast; for the files of this folder.
#pragma once

#include <memory>

#include "net/http_connection.hpp"
#include "net/http_proxy.hpp"

namespace asr {

asio::awaitable<Result<void>> proxy_over(Exchange* exchange, asio::any_io_executor executor,
                                         std::shared_ptr<PlainStream> upstream, ProxyRules rules);
asio::awaitable<Result<void>> proxy_over(Exchange* exchange, asio::any_io_executor executor,
                                         std::shared_ptr<TlsStream> upstream, ProxyRules rules);

}  // namespace asr
