// Tokens somebody else signed: checked against one configured key, of one kind, and nothing the
// token says about keys is believed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "session/caller.hpp"

namespace asr {

struct JwtOptions {
  std::string secret;      // HS256
  std::string public_key;  // PEM: RS256 or ES256, by what kind of key it is
  std::string issuer;      // must be named and equal, where set
  std::string audience;    // likewise; a token may have several
  std::string role_claim = "role";
};

class JwtVerifier {
 public:
  // Nothing where no key is configured; an error where it cannot be used.
  static Result<std::unique_ptr<JwtVerifier>> make(JwtOptions options);
  ~JwtVerifier();

  static bool looks_like_token(std::string_view text);
  // `now`: seconds since 1970.
  Result<Caller> verify(std::string_view token, std::int64_t now) const;

 private:
  struct Key;
  JwtVerifier(JwtOptions options, std::unique_ptr<Key> key);
  Result<void> check_signature(std::string_view signed_part, const std::string& signature) const;

  JwtOptions options_;
  std::unique_ptr<Key> key_;
};

}  // namespace asr
