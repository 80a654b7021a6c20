// Secrets at rest, and the digests by which secrets are recognised without being kept.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace asr {

constexpr std::size_t kSecretKeySize = 32;
using SecretKey = std::array<unsigned char, kSecretKeySize>;

// Seals with AES-256-GCM under one key. May be used from any thread.
class SecretBox {
 public:
  explicit SecretBox(const SecretKey& key) noexcept : key_(key) {}
  ~SecretBox();
  SecretBox(const SecretBox&) = delete;
  SecretBox& operator=(const SecretBox&) = delete;

  // `context` says what the value belongs to, such as the id of its row: a sealed value that was
  // moved elsewhere does not open there. Throws when OpenSSL fails; it never gives back clear text.
  std::string seal(std::string_view plain, std::string_view context) const;
  Result<std::string> open(std::string_view sealed, std::string_view context) const;

  // 32 bytes that only this key gives to `text`: HMAC-SHA256 under a key derived from it, so that
  // nothing that is sealed depends on what is told here.
  std::string mac(std::string_view text) const;

 private:
  SecretKey key_;
};

SecretKey random_secret_key();

std::string sha256(std::string_view data);  // 32 bytes.
std::string to_hex(std::string_view data);
// Takes as long for strings that differ early as for those that differ late.
bool constant_time_equal(std::string_view a, std::string_view b) noexcept;

}  // namespace asr
