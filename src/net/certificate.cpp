#include "net/certificate.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/unique_fd.hpp"
#include "net/x509.hpp"

namespace asr {

namespace {

namespace fs = std::filesystem;

constexpr long kLife = 365L * 24 * 3600;
constexpr long kRenewBefore = 7L * 24 * 3600;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Result<Certificate> make_certificate(EVP_PKEY* key) {
  Certificate certificate = TRY(blank_certificate(key, "agent-sandbox", kLife));
  X509* raw = certificate.get();
  ::X509_set_issuer_name(raw, ::X509_get_subject_name(raw));
  char host[256] = "localhost";
  (void)::gethostname(host, sizeof host - 1);
  std::string names = "DNS:localhost,DNS:*.localhost,IP:127.0.0.1,IP:::1,DNS:" + std::string(host);
  TRY(add_extension(raw, raw, NID_subject_alt_name, names));
  TRY(add_extension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TRY(add_extension(raw, raw, NID_key_usage, "critical,digitalSignature,keyCertSign"));
  TRY(add_extension(raw, raw, NID_ext_key_usage, "serverAuth"));
  if (::X509_sign(certificate.get(), key, ::EVP_sha256()) == 0)
    return certificate_failed("signature");
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
  PrivateKey key(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), ::EVP_PKEY_free);
  if (!key) return certificate_failed("key");
  Certificate certificate = TRY(make_certificate(key.get()));
  File key_file = TRY(create(files.key));
  if (::PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return certificate_failed("write the key");
  File certificate_file = TRY(create(files.certificate));
  if (::PEM_write_X509(certificate_file.get(), certificate.get()) != 1)
    return certificate_failed("write it");
  return files;
}

}  // namespace asr
