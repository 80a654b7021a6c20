#include "session/content_hash.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>

#include "store/secret_box.hpp"

namespace asr {

namespace {

void require(int done) {
  if (done != 1) throw std::runtime_error("OpenSSL cannot hash");
}

}  // namespace

ContentHash::ContentHash() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr ? EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) : 0);
}

ContentHash::~ContentHash() { EVP_MD_CTX_free(context_); }

void ContentHash::feed(std::string_view data) {
  std::uint64_t room = kHashed - std::min(kHashed, size_);
  std::size_t hashed = static_cast<std::size_t>(std::min<std::uint64_t>(room, data.size()));
  if (hashed > 0) require(EVP_DigestUpdate(context_, data.data(), hashed));
  size_ += data.size();
}

std::string ContentHash::finish() {
  std::string digest(32, '\0');
  require(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(digest.data()), nullptr));
  return to_hex(digest);
}

void ContentHash::describe(json::object& out) {
  out["size"] = size_;
  out["sha256"] = finish();
  if (size_ > kHashed) out["sha256_bytes"] = kHashed;
}

}  // namespace asr
