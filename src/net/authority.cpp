#include "net/authority.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <map>

#include "net/x509.hpp"

namespace asr {

namespace ssl = boost::asio::ssl;

namespace {

using Clock = std::chrono::steady_clock;

constexpr long kAuthorityLife = 370L * 24 * 3600;  // No session is promised more than a year.
constexpr long kLeafLife = 24L * 3600;
constexpr std::chrono::hours kRenewAfter{12};
constexpr std::size_t kMostLeaves = 64;

Result<PrivateKey> make_key() {
  PrivateKey key(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), ::EVP_PKEY_free);
  if (!key) return certificate_failed("key");
  return key;
}

Result<Certificate> make_authority(EVP_PKEY* key) {
  Certificate made = TRY(blank_certificate(key, "agent-sandbox session", kAuthorityLife));
  ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(made.get()));
  TRY(add_extension(made.get(), made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TRY(add_extension(made.get(), made.get(), NID_key_usage, "critical,keyCertSign"));
  TRY(add_extension(made.get(), made.get(), NID_ext_key_usage, "serverAuth"));
  TRY(add_extension(made.get(), made.get(), NID_subject_key_identifier, "hash"));
  if (::X509_sign(made.get(), key, ::EVP_sha256()) == 0) return certificate_failed("signature");
  return made;
}

// Names are canonical: nothing in them ends the value they stand in.
Result<Certificate> make_leaf(EVP_PKEY* key, X509* authority, EVP_PKEY* authority_key,
                              const HostName& host) {
  Certificate made = TRY(blank_certificate(key, "agent-sandbox", kLeafLife));
  ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(authority));
  std::string kind = host.is_address ? "IP:" : "DNS:";
  TRY(add_extension(made.get(), authority, NID_subject_alt_name, kind + host.text));
  TRY(add_extension(made.get(), authority, NID_basic_constraints, "critical,CA:FALSE"));
  TRY(add_extension(made.get(), authority, NID_key_usage, "critical,digitalSignature"));
  TRY(add_extension(made.get(), authority, NID_ext_key_usage, "serverAuth"));
  TRY(add_extension(made.get(), authority, NID_authority_key_identifier, "keyid:always"));
  if (::X509_sign(made.get(), authority_key, ::EVP_sha256()) == 0)
    return certificate_failed("signature");
  return made;
}

Result<std::string> to_pem(X509* certificate) {
  std::unique_ptr<BIO, void (*)(BIO*)> out(::BIO_new(::BIO_s_mem()), ::BIO_free_all);
  if (!out || ::PEM_write_bio_X509(out.get(), certificate) != 1) return certificate_failed("PEM");
  char* data = nullptr;
  long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

// Whoever offers protocols, but not this one, is told so rather than misunderstood.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned offered_size, void*) {
  static constexpr unsigned char kSpoken[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  int found = ::SSL_select_next_proto(&chosen, out_size, kSpoken, sizeof kSpoken - 1, offered,
                                      offered_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

struct Authority::Keys {
  struct Leaf {
    std::shared_ptr<ssl::context> context;
    Clock::time_point made;
  };

  PrivateKey key{nullptr, ::EVP_PKEY_free};
  Certificate certificate{nullptr, ::X509_free};
  PrivateKey leaf_key{nullptr, ::EVP_PKEY_free};
  std::map<std::string, Leaf> leaves;
};

Authority::Authority() : keys_(std::make_unique<Keys>()) {}
Authority::~Authority() = default;

Result<std::unique_ptr<Authority>> Authority::make() {
  std::unique_ptr<Authority> authority(new Authority());
  Keys& keys = *authority->keys_;
  keys.key = TRY(make_key());
  keys.leaf_key = TRY(make_key());
  keys.certificate = TRY(make_authority(keys.key.get()));
  authority->pem_ = TRY(to_pem(keys.certificate.get()));
  return authority;
}

Result<std::shared_ptr<ssl::context>> Authority::server_context(const HostName& host) {
  auto known = keys_->leaves.find(host.text);
  if (known != keys_->leaves.end() && Clock::now() - known->second.made < kRenewAfter)
    return known->second.context;
  Certificate leaf =
      TRY(make_leaf(keys_->leaf_key.get(), keys_->certificate.get(), keys_->key.get(), host));
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* raw = context->native_handle();
  if (SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) != 1 ||
      ::SSL_CTX_use_certificate(raw, leaf.get()) != 1 ||
      ::SSL_CTX_use_PrivateKey(raw, keys_->leaf_key.get()) != 1)
    return certificate_failed("context");
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  ::SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  if (keys_->leaves.size() >= kMostLeaves) keys_->leaves.clear();
  keys_->leaves[host.text] = {context, Clock::now()};
  return context;
}

}  // namespace asr
