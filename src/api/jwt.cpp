#include "api/jwt.hpp"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>

#include "net/json.hpp"
#include "store/secret_box.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongestToken = 8192;
constexpr std::int64_t kSkew = 30;  // seconds that clocks may differ
constexpr std::size_t kShortestSecret = 32;

using PKey = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

Error bad_token(const char* what) { return Error(Errc::denied, std::string("the token ") + what); }

Result<std::string> from_base64url(std::string_view text) {
  std::string plain(text);
  if (plain.find_first_of("+/=") != std::string::npos) return fail(bad_token("is malformed"));
  std::replace(plain.begin(), plain.end(), '-', '+');
  std::replace(plain.begin(), plain.end(), '_', '/');
  plain.append((4 - plain.size() % 4) % 4, '=');
  auto bytes = from_base64(plain);
  if (!bytes) return fail(bad_token("is malformed"));
  return std::move(*bytes);
}

Result<json::object> object_in(std::string_view part) {
  auto value = parse_json(TRY(from_base64url(part)));
  if (!value || !value->is_object()) return fail(bad_token("is malformed"));
  return std::move(value->get_object());
}

std::string text_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : "";
}

// A time within reason; anything else is as good as none.
std::optional<std::int64_t> time_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  if (!value || !value->is_number()) return std::nullopt;
  double seconds = value->to_number<double>();
  if (!(seconds >= 0 && seconds < 1e11)) return std::nullopt;
  return static_cast<std::int64_t>(seconds);
}

bool names_audience(const json::object& claims, const std::string& wanted) {
  const json::value* audience = claims.if_contains("aud");
  if (!audience) return false;
  if (audience->is_string()) return audience->get_string() == wanted;
  if (!audience->is_array()) return false;
  const json::array& all = audience->get_array();
  return std::any_of(all.begin(), all.end(), [&](const json::value& each) {
    return each.is_string() && each.get_string() == wanted;
  });
}

// r and s side by side, as tokens have them, to what OpenSSL reads.
std::string der_signature(const std::string& raw) {
  if (raw.size() != 64) return "";
  const auto* bytes = reinterpret_cast<const unsigned char*>(raw.data());
  std::unique_ptr<ECDSA_SIG, void (*)(ECDSA_SIG*)> signature(::ECDSA_SIG_new(), ::ECDSA_SIG_free);
  ::ECDSA_SIG_set0(signature.get(), ::BN_bin2bn(bytes, 32, nullptr),
                   ::BN_bin2bn(bytes + 32, 32, nullptr));
  std::string der(static_cast<std::size_t>(::i2d_ECDSA_SIG(signature.get(), nullptr)), '\0');
  auto* at = reinterpret_cast<unsigned char*>(der.data());
  ::i2d_ECDSA_SIG(signature.get(), &at);
  return der;
}

}  // namespace

struct JwtVerifier::Key {
  std::string algorithm;
  PKey key{nullptr, ::EVP_PKEY_free};
};

JwtVerifier::JwtVerifier(JwtOptions options, std::unique_ptr<Key> key)
    : options_(std::move(options)), key_(std::move(key)) {}
JwtVerifier::~JwtVerifier() = default;

Result<std::unique_ptr<JwtVerifier>> JwtVerifier::make(JwtOptions options) {
  if (options.secret.empty() && options.public_key.empty()) return nullptr;
  if (!options.secret.empty() && !options.public_key.empty())
    return fail(Errc::invalid, "jwt.secret and jwt.public_key exclude each other",
                "tokens are signed in one way only");
  auto key = std::make_unique<Key>();
  if (!options.secret.empty()) {
    if (options.secret.size() < kShortestSecret)
      return fail(Errc::invalid, "jwt.secret must have at least 32 characters");
    key->algorithm = "HS256";
  } else {
    std::unique_ptr<BIO, void (*)(BIO*)> text(
        ::BIO_new_mem_buf(options.public_key.data(), static_cast<int>(options.public_key.size())),
        ::BIO_free_all);
    key->key.reset(::PEM_read_bio_PUBKEY(text.get(), nullptr, nullptr, nullptr));
    int kind = key->key ? ::EVP_PKEY_base_id(key->key.get()) : 0;
    if (kind == EVP_PKEY_RSA && ::EVP_PKEY_bits(key->key.get()) >= 2048)
      key->algorithm = "RS256";
    else if (kind == EVP_PKEY_EC && ::EVP_PKEY_bits(key->key.get()) == 256)
      key->algorithm = "ES256";
    else
      return fail(Errc::invalid, "jwt.public_key is no PEM key for RS256 or ES256",
                  "an RSA key of at least 2048 bits, or one on P-256");
  }
  return std::unique_ptr<JwtVerifier>(new JwtVerifier(std::move(options), std::move(key)));
}

bool JwtVerifier::looks_like_token(std::string_view text) {
  return text.starts_with("ey") && std::count(text.begin(), text.end(), '.') == 2;
}

Result<void> JwtVerifier::check_signature(std::string_view signed_part,
                                          const std::string& signature) const {
  const auto* data = reinterpret_cast<const unsigned char*>(signed_part.data());
  if (key_->algorithm == "HS256") {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    ::HMAC(::EVP_sha256(), options_.secret.data(), static_cast<int>(options_.secret.size()), data,
           signed_part.size(), digest, &size);
    std::string_view right(reinterpret_cast<const char*>(digest), size);
    if (!constant_time_equal(right, signature)) return fail(bad_token("has a wrong signature"));
    return {};
  }
  std::string raw = key_->algorithm == "ES256" ? der_signature(signature) : signature;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free);
  bool good = !raw.empty() &&
              ::EVP_DigestVerifyInit(context.get(), nullptr, ::EVP_sha256(), nullptr,
                                     key_->key.get()) == 1 &&
              ::EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(raw.data()),
                                 raw.size(), data, signed_part.size()) == 1;
  if (!good) return fail(bad_token("has a wrong signature"));
  return {};
}

Result<Caller> JwtVerifier::verify(std::string_view token, std::int64_t now) const {
  if (token.size() > kLongestToken) return fail(bad_token("is too long"));
  std::size_t first = token.find('.');
  std::size_t second = token.rfind('.');
  if (first == std::string_view::npos || first == second) return fail(bad_token("is malformed"));
  json::object header = TRY(object_in(token.substr(0, first)));
  if (text_in(header, "alg") != key_->algorithm || header.contains("crit"))
    return fail(bad_token("is not signed as this server wants it"));
  std::string signature = TRY(from_base64url(token.substr(second + 1)));
  TRY(check_signature(token.substr(0, second), signature));

  json::object claims = TRY(object_in(token.substr(first + 1, second - first - 1)));
  auto expires = time_in(claims, "exp");
  if (!expires) return fail(bad_token("does not say when it expires"));
  if (*expires + kSkew <= now) return fail(bad_token("has expired"));
  if (claims.contains("nbf") && time_in(claims, "nbf").value_or(INT64_MAX) > now + kSkew)
    return fail(bad_token("is not valid yet"));
  if (!options_.issuer.empty() && text_in(claims, "iss") != options_.issuer)
    return fail(bad_token("is of another issuer"));
  if (!options_.audience.empty() && !names_audience(claims, options_.audience))
    return fail(bad_token("is for another audience"));
  std::string subject = text_in(claims, "sub");
  if (subject.empty() || subject.size() > 200) return fail(bad_token("names no subject"));
  auto role = parse_role(text_in(claims, options_.role_claim));
  return Caller{"jwt:" + subject, role.value_or(Role::user), 0, "", (*expires + kSkew) * 1000};
}

}  // namespace asr
