// File work as E2B does it: everything can be reached, and what is made belongs to the user.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/e2b/envd.hpp"

namespace asr {

// With the rights of the call's user, and where these do not suffice with root's.
template <class T>
asio::awaitable<Result<T>> with_rights(
    EnvdCallPtr call, std::function<asio::awaitable<Result<T>>(std::string user)> work) {
  auto trying = work(call->user);
  auto done = co_await std::move(trying);
  if (done || done.error().code != Errc::denied || call->user == "root") co_return done;
  auto as_root = work("root");
  auto forced = co_await std::move(as_root);
  // Where there is no root, what the user may not stays so.
  if (!forced && forced.error().code == Errc::unsupported) co_return done;
  co_return forced;
}

// The same for what makes something at `path`: that, and the folders on the way that were missing,
// belong to the user afterwards.
asio::awaitable<Result<void>> make_with_rights(
    EnvdCallPtr call, std::string path,
    std::function<asio::awaitable<Result<void>>(std::string user)> work);

// Of `path` and the folders above it those that are not there, the highest first; root looks.
asio::awaitable<std::vector<std::string>> missing_above(EnvdCallPtr call, std::string path);
// Gives what was made to the call's user.
asio::awaitable<Result<void>> give_to_user(EnvdCallPtr call, std::vector<std::string> paths);

asio::awaitable<Result<FileInfo>> stat_file(EnvdCallPtr call, std::string path);
// EntryInfo of what is at `path`, links followed to their end.
asio::awaitable<Result<json::object>> describe_file(EnvdCallPtr call, std::string path);
asio::awaitable<Result<json::object>> describe_file(EnvdCallPtr call, std::string path,
                                                    FileInfo info);

}  // namespace asr
