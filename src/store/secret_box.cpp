#include "store/secret_box.hpp"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <limits>
#include <memory>
#include <stdexcept>

namespace asr {

namespace {

constexpr std::size_t kNonce = 12;
constexpr std::size_t kTag = 16;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

int length(std::size_t size) {
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error("too long to be sealed");
  return static_cast<int>(size);
}

// For what cannot fail but for lack of memory or a broken OpenSSL.
void require(int code) {
  if (code != 1) throw std::runtime_error("OpenSSL does not do its work");
}

// Looked up once: OpenSSL's search by name costs more than the work on a few hundred bytes.
const EVP_CIPHER* aes_256_gcm() {
  static const EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  return cipher;
}
const EVP_MD* sha_256() {
  static const EVP_MD* const digest = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return digest;
}

}  // namespace

SecretBox::~SecretBox() { OPENSSL_cleanse(key_.data(), key_.size()); }

// The nonce, then the sealed bytes, then the tag.
std::string SecretBox::seal(std::string_view plain, std::string_view context) const {
  std::string sealed(kNonce + plain.size() + kTag, '\0');
  require(RAND_bytes(bytes(sealed), kNonce));
  Context cipher(EVP_CIPHER_CTX_new());
  int done = 0;
  require(EVP_EncryptInit_ex(cipher.get(), aes_256_gcm(), nullptr, key_.data(), bytes(sealed)));
  if (!context.empty())
    require(
        EVP_EncryptUpdate(cipher.get(), nullptr, &done, bytes(context), length(context.size())));
  unsigned char* out = bytes(sealed) + kNonce;
  if (!plain.empty())
    require(EVP_EncryptUpdate(cipher.get(), out, &done, bytes(plain), length(plain.size())));
  unsigned char* tag = out + plain.size();
  require(EVP_EncryptFinal_ex(cipher.get(), tag, &done));
  require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTag, tag));
  return sealed;
}

Result<std::string> SecretBox::open(std::string_view sealed, std::string_view context) const {
  auto refuse = [] {
    return fail(Errc::internal, "a sealed value does not open",
                "it was changed, moved, or sealed with another secret.key");
  };
  if (sealed.size() < kNonce + kTag) return refuse();
  std::string_view hidden = sealed.substr(kNonce, sealed.size() - kNonce - kTag);
  std::string tag(sealed.substr(sealed.size() - kTag));
  std::string plain(hidden.size(), '\0');
  Context cipher(EVP_CIPHER_CTX_new());
  int done = 0;
  require(EVP_DecryptInit_ex(cipher.get(), aes_256_gcm(), nullptr, key_.data(), bytes(sealed)));
  if (!context.empty())
    require(
        EVP_DecryptUpdate(cipher.get(), nullptr, &done, bytes(context), length(context.size())));
  if (!hidden.empty())
    require(
        EVP_DecryptUpdate(cipher.get(), bytes(plain), &done, bytes(hidden), length(hidden.size())));
  require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTag, tag.data()));
  unsigned char rest = 0;
  if (EVP_DecryptFinal_ex(cipher.get(), &rest, &done) != 1) {
    OPENSSL_cleanse(plain.data(), plain.size());
    ERR_clear_error();  // Or the next TLS connection of this thread would take it for its own.
    return refuse();
  }
  return plain;
}

std::string SecretBox::mac(std::string_view text) const {
  static constexpr std::string_view kPurpose = "message authentication";
  SecretKey derived;
  std::string out(derived.size(), '\0');
  unsigned size = 0;
  bool made = HMAC(sha_256(), key_.data(), length(key_.size()), bytes(kPurpose), kPurpose.size(),
                   derived.data(), &size) != nullptr &&
              HMAC(sha_256(), derived.data(), length(derived.size()), bytes(text), text.size(),
                   bytes(out), &size) != nullptr;
  OPENSSL_cleanse(derived.data(), derived.size());
  require(made && size == out.size() ? 1 : 0);
  return out;
}

SecretKey random_secret_key() {
  SecretKey key;
  require(RAND_priv_bytes(key.data(), kSecretKeySize));
  return key;
}

std::string sha256(std::string_view data) {
  std::string digest(32, '\0');
  require(EVP_Digest(data.data(), data.size(), bytes(digest), nullptr, sha_256(), nullptr));
  return digest;
}

std::string to_hex(std::string_view data) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(data.size() * 2);
  for (char c : data) {
    auto byte = static_cast<unsigned char>(c);
    text.push_back(kDigits[byte >> 4U]);
    text.push_back(kDigits[byte & 15U]);
  }
  return text;
}

bool constant_time_equal(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace asr
