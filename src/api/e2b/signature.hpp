// Addresses of files that need no header: whoever has the sandbox's token signs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/http.hpp"

namespace asr {

// What somebody signed, as it stands in the query.
struct SignedRequest {
  std::string path;
  std::string operation;  // read or write
  std::string user;
  std::optional<std::int64_t> expires;  // Unix seconds
  std::string signature;
};

// Nothing if the query has no signature. Errc::invalid if its expiry is no number.
Result<std::optional<SignedRequest>> signed_request(const RequestHead& head);

std::string signature_of(const SignedRequest& request, std::string_view token);
// Compared in constant time.
bool is_signed_with(const SignedRequest& request, std::string_view token);
bool is_expired(const SignedRequest& request, std::int64_t now_s) noexcept;

}  // namespace asr
