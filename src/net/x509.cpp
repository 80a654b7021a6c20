#include "net/x509.hpp"

#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace asr {

namespace {

Result<void> set_serial(X509* certificate) {
  unsigned char serial[16];
  if (::RAND_bytes(serial, sizeof serial) != 1) return certificate_failed("serial");
  serial[0] &= 0x7f;
  std::unique_ptr<BIGNUM, void (*)(BIGNUM*)> number(::BN_bin2bn(serial, sizeof serial, nullptr),
                                                    ::BN_free);
  if (!::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(certificate)))
    return certificate_failed("serial");
  return {};
}

}  // namespace

Result<Certificate> blank_certificate(EVP_PKEY* key, const char* common_name, long life_seconds) {
  Certificate certificate(::X509_new(), ::X509_free);
  if (!certificate) return certificate_failed("memory");
  TRY(set_serial(certificate.get()));
  ::X509_set_version(certificate.get(), 2);
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), -60);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), life_seconds);
  ::X509_set_pubkey(certificate.get(), key);
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(common_name), -1, -1, 0);
  return certificate;
}

Result<void> add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> extension(
      ::X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()), ::X509_EXTENSION_free);
  if (!extension || ::X509_add_ext(certificate, extension.get(), -1) != 1)
    return certificate_failed("extension");
  return {};
}

}  // namespace asr
