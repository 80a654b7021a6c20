// A program in a session of a server, as if it were in a sandbox of this process. It outlives us,
// and we the server: see remote_output.hpp.
#pragma once

#include <memory>
#include <string>

#include "cli/remote.hpp"
#include "cli/remote_input.hpp"
#include "cli/remote_output.hpp"
#include "engine/sandbox.hpp"

namespace asr {

class RemoteExecution final : public Execution {
 public:
  static asio::awaitable<Result<std::shared_ptr<RemoteExecution>>> start(std::string session,
                                                                         Command command);
  RemoteExecution(const RemoteExecution&) = delete;
  RemoteExecution& operator=(const RemoteExecution&) = delete;
  ~RemoteExecution() override;

  // All the server tells of it, output included.
  asio::awaitable<Result<json::value>> describe();

  std::int32_t pid() const noexcept override { return 0; }  // The server does not tell.
  std::string label() const override { return id_; }        // its name in the session
  asio::awaitable<Result<std::optional<OutputChunk>>> read() override;
  asio::awaitable<Result<void>> write_stdin(std::string data) override;
  asio::awaitable<Result<void>> send_descriptor(UniqueFd descriptor) override;
  asio::awaitable<Result<void>> close_stdin() override;
  asio::awaitable<Result<void>> close_output(OutputChunk::Stream stream) override;
  asio::awaitable<Result<void>> signal(int number) override;
  asio::awaitable<Result<void>> resize(TerminalSize size) override;
  asio::awaitable<Result<ExitStatus>> wait() override;
  asio::awaitable<Result<void>> keep(std::string label) override;

 private:
  struct Calls;

  RemoteExecution(const asio::any_io_executor& executor, const Remote& remote, std::string session,
                  json::object request);
  std::string path(std::string_view rest = "") const;

  std::string session_;
  std::string id_;
  std::unique_ptr<Calls> calls_;
  RemoteOutput output_;
  std::unique_ptr<RemoteInput> input_;
};

}  // namespace asr
