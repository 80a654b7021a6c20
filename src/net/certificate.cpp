#include "net/certificate.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/unique_fd.hpp"

namespace asr {

namespace {

namespace fs = std::filesystem;

constexpr long kLife = 365L * 24 * 3600;
constexpr long kRenewBefore = 7L * 24 * 3600;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
using File = std::unique_ptr<std::FILE, CloseFile>;

auto failed(const char* what) {
  return fail(Errc::internal, std::string("cannot make a certificate: ") + what);
}

Result<void> add_extension(X509* certificate, int kind, const std::string& value) {
  std::unique_ptr<X509_EXTENSION, void (*)(X509_EXTENSION*)> extension(
      ::X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()), ::X509_EXTENSION_free);
  if (!extension || ::X509_add_ext(certificate, extension.get(), -1) != 1)
    return failed("extension");
  return {};
}

Result<void> set_serial(X509* certificate) {
  unsigned char serial[16];
  if (::RAND_bytes(serial, sizeof serial) != 1) return failed("serial");
  serial[0] &= 0x7f;
  std::unique_ptr<BIGNUM, void (*)(BIGNUM*)> number(::BN_bin2bn(serial, sizeof serial, nullptr),
                                                    ::BN_free);
  if (!::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(certificate)))
    return failed("serial");
  return {};
}

Result<Certificate> make_certificate(EVP_PKEY* key) {
  Certificate certificate(::X509_new(), ::X509_free);
  if (!certificate) return failed("memory");
  TRY(set_serial(certificate.get()));
  ::X509_set_version(certificate.get(), 2);
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), -60);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), kLife);
  ::X509_set_pubkey(certificate.get(), key);
  X509_NAME* name = ::X509_get_subject_name(certificate.get());
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>("agent-sandbox"), -1, -1, 0);
  ::X509_set_issuer_name(certificate.get(), name);
  char host[256] = "localhost";
  (void)::gethostname(host, sizeof host - 1);
  std::string names = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1,DNS:" + std::string(host);
  TRY(add_extension(certificate.get(), NID_subject_alt_name, names));
  TRY(add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TRY(add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature,keyCertSign"));
  TRY(add_extension(certificate.get(), NID_ext_key_usage, "serverAuth"));
  if (::X509_sign(certificate.get(), key, ::EVP_sha256()) == 0) return failed("signature");
  return certificate;
}

bool lives_long_enough(const fs::path& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (!file) return false;
  Certificate certificate(::PEM_read_X509(file.get(), nullptr, nullptr, nullptr), ::X509_free);
  int days = 0;
  int seconds = 0;
  if (!certificate ||
      ::ASN1_TIME_diff(&days, &seconds, nullptr, ::X509_get0_notAfter(certificate.get())) != 1)
    return false;
  return days * 24L * 3600 + seconds > kRenewBefore;
}

Result<File> create(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return fail_errno("write " + path.native());
  return File(::fdopen(fd.release(), "w"));
}

}  // namespace

Result<TlsFiles> own_certificate(const fs::path& folder) {
  TlsFiles files{(folder / "certificate.pem").native(), (folder / "key.pem").native()};
  if (lives_long_enough(files.certificate) && ::access(files.key.c_str(), R_OK) == 0) return files;
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (::chmod(folder.c_str(), 0700) != 0) return fail_errno("make " + folder.native());
  Key key(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), ::EVP_PKEY_free);
  if (!key) return failed("key");
  Certificate certificate = TRY(make_certificate(key.get()));
  File key_file = TRY(create(files.key));
  if (::PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return failed("write the key");
  File certificate_file = TRY(create(files.certificate));
  if (::PEM_write_X509(certificate_file.get(), certificate.get()) != 1) return failed("write it");
  return files;
}

}  // namespace asr
