// The part of filesystem.Filesystem that watches folders: as a stream, or asked from time to time.
#pragma once

#include "api/e2b/envd.hpp"

namespace asr {

Answering watch_dir(EnvdCallPtr call);
asio::awaitable<Result<Unary>> create_watcher(EnvdCallPtr call, json::object message);
asio::awaitable<Result<Unary>> watcher_events(EnvdCallPtr call, json::object message);
asio::awaitable<Result<Unary>> remove_watcher(EnvdCallPtr call, json::object message);

}  // namespace asr
