// The steps that all certificates of this project's making share.
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <string>

#include "base/result.hpp"

namespace asr {

using PrivateKey = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

inline auto certificate_failed(const char* what) {
  return fail(Errc::internal, std::string("cannot make a certificate: ") + what);
}

// With a serial number of its own, valid from a minute ago; without issuer, extensions, signature.
Result<Certificate> blank_certificate(EVP_PKEY* key, const char* common_name, long life_seconds);

// `kind` is one of OpenSSL's NID_…, `value` in the words of its configuration files.
Result<void> add_extension(X509* certificate, X509* issuer, int kind, const std::string& value);

}  // namespace asr
