// E2B's data plane: requests to one sandbox, told apart by headers or by the name of the host, and
// answered by what stands for its daemon, its interpreter, or a server inside.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "api/api.hpp"
#include "api/e2b/data_target.hpp"
#include "api/e2b/envd.hpp"
#include "api/e2b/tokens.hpp"

namespace asr {

class DataPlane {
 public:
  // May somebody at this address, who was wrong, try again?
  using MayGuess = std::function<bool(const std::string& peer)>;

  DataPlane(const ApiParts& parts, MayGuess may_guess);

  // Answers, and tells with which status; 0: the connection is to break off.
  asio::awaitable<unsigned> handle(Exchange* exchange, DataTarget target);

 private:
  asio::awaitable<unsigned> refuse(Exchange* exchange, unsigned status, std::string message);
  asio::awaitable<unsigned> wrong_token(Exchange* exchange, std::string message);
  asio::awaitable<unsigned> not_found(Exchange* exchange, const DataTarget* target);
  asio::awaitable<unsigned> serve_envd(EnvdCallPtr call, bool is_signed);
  asio::awaitable<unsigned> serve_cells(EnvdCallPtr call);
  asio::awaitable<unsigned> show_port(Exchange* exchange, DataTarget target);
  asio::awaitable<Result<bool>> take_user(EnvdCallPtr call);
  std::optional<std::string> signer(const SignedRequest& request);
  std::optional<std::string> opened_by(std::string_view token);
  void learn_tokens();
  std::shared_ptr<EnvdMemory> memory_of(const std::shared_ptr<Session>& session);

  ApiParts parts_;
  MayGuess may_guess_;
  E2bTokens tokens_;
  std::unordered_map<std::string, std::shared_ptr<EnvdMemory>> memories_;
  std::unordered_map<std::string, std::string> known_tokens_;  // of live sessions, by name
  std::unordered_map<std::string, std::string> by_digest_;     // names, by digests of tokens
};

}  // namespace asr
