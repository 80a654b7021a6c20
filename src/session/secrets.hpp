// Secrets that owners name and never see again. What a session's programs send out may carry them:
// ${secret.NAME} in the value of a credential stands for one, and is filled in outside.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "net/egress_policy.hpp"
#include "session/caller.hpp"
#include "store/secret_records.hpp"
#include "store/store.hpp"

namespace asr {

namespace asio = boost::asio;

class SecretKeeper {
 public:
  explicit SecretKeeper(Store& store) : store_(store) {}

  asio::awaitable<Result<SecretRecord>> create(Caller caller, std::string name, std::string value,
                                               std::string metadata);
  asio::awaitable<Result<SecretRecord>> update(Caller caller, std::string id_or_name,
                                               std::string value,
                                               std::optional<std::string> metadata);
  asio::awaitable<Result<std::vector<SecretRecord>>> list(Caller caller);
  asio::awaitable<Result<SecretRecord>> find(Caller caller, std::string id_or_name);
  asio::awaitable<Result<void>> remove(Caller caller, std::string id_or_name);

  // A policy whose credentials have the secrets of `owner` in them. A credential whose secret is
  // missing is an error, or is left out.
  enum class Missing { refused, left_out };
  asio::awaitable<Result<EgressPolicy>> fill_in(std::string owner, EgressPolicy policy,
                                                Missing missing);

 private:
  Store& store_;
};

// Whether a policy has any of them in it.
bool names_secrets(const EgressPolicy& policy);

}  // namespace asr
