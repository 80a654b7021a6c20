// Bytes between a client and a sandbox's files, a little at a time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>

#include "api/route.hpp"
#include "base/unique_fd.hpp"
#include "engine/sandbox.hpp"
#include "session/content_hash.hpp"

namespace asr {

// Answers with a regular file: whole, in part, or not at all if the client has it already.
asio::awaitable<Result<Reply>> send_download(CallPtr call, UniqueFd file, std::string path);

// Whether If-Match and If-None-Match let a write happen. `present`: the file as it is, or nothing.
Result<bool> write_is_wanted(const RequestHead& head, const UniqueFd& present);

// Takes the body into a file. It appears under its name when it is complete, not before. `hash`
// sees what comes; it may be none.
asio::awaitable<Result<void>> receive_upload(CallPtr call, asio::any_io_executor executor,
                                             std::shared_ptr<Sandbox> sandbox, std::string path,
                                             std::string user, std::uint32_t mode,
                                             std::shared_ptr<ContentHash> hash);

// Answers with what comes out of a pipe, until its end.
asio::awaitable<Result<Reply>> send_pipe(CallPtr call, asio::any_io_executor executor,
                                         UniqueFd pipe, std::string media);

asio::awaitable<Result<Sandbox::ArchiveReport>> receive_archive(CallPtr call,
                                                                asio::any_io_executor executor,
                                                                std::shared_ptr<Sandbox> sandbox,
                                                                std::string path, std::string user,
                                                                std::shared_ptr<ContentHash> hash);

}  // namespace asr
