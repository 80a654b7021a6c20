#include "api/jwt.hpp"

#include <gtest/gtest.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>

#include "net/json.hpp"

namespace asr {
namespace {

constexpr std::int64_t kNow = 1'700'000'000;
const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::string base64url(std::string_view bytes) {
  std::string text = base64(bytes);
  std::replace(text.begin(), text.end(), '+', '-');
  std::replace(text.begin(), text.end(), '/', '_');
  text.erase(std::find(text.begin(), text.end(), '='), text.end());
  return text;
}

std::string signed_by_secret(const std::string& header, const std::string& claims,
                             const std::string& secret = kSecret) {
  std::string part = base64url(header) + "." + base64url(claims);
  unsigned char digest[32];
  unsigned int size = 0;
  ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(part.data()), part.size(), digest, &size);
  return part + "." + base64url({reinterpret_cast<char*>(digest), size});
}

const std::string kHeader = R"({"alg":"HS256","typ":"JWT"})";
const std::string kClaims =
    R"({"sub":"ann","exp":1700000100,"iss":"me","aud":["x","sandbox"],"role":"operator"})";

std::unique_ptr<JwtVerifier> by_secret() {
  JwtOptions options;
  options.secret = kSecret;
  options.issuer = "me";
  options.audience = "sandbox";
  return std::move(*JwtVerifier::make(options));
}

TEST(Jwt, AGoodTokenNamesItsCaller) {
  auto caller = by_secret()->verify(signed_by_secret(kHeader, kClaims), kNow);
  ASSERT_TRUE(caller) << caller.error().what;
  EXPECT_EQ(caller->id, "jwt:ann");
  EXPECT_EQ(caller->role, Role::oper);
}

class Bad : public testing::TestWithParam<std::pair<std::string, std::string>> {};
TEST_P(Bad, IsRefused) {
  auto [header, claims] = GetParam();
  EXPECT_FALSE(by_secret()->verify(signed_by_secret(header, claims), kNow));
}
INSTANTIATE_TEST_SUITE_P(
    Tokens, Bad,
    testing::Values(
        std::pair(R"({"alg":"none"})", kClaims), std::pair(R"({"alg":"RS256"})", kClaims),
        std::pair(R"({"alg":"hs256"})", kClaims), std::pair(R"({"alg":["HS256"]})", kClaims),
        std::pair(R"({"alg":"HS256","alg":"none"})", kClaims), std::pair("{}", kClaims),
        std::pair(R"({"alg":"HS256","crit":["x"]})", kClaims), std::pair("[]", kClaims),
        std::pair(kHeader, R"({"sub":"ann","iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":1e30,"iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":"1700000100","iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":1699999900,"iss":"me","aud":"sandbox"})"),
        std::pair(kHeader,
                  R"({"sub":"ann","exp":1700000100,"nbf":1700000090,"iss":"me","aud":"sandbox"})"),
        std::pair(kHeader,
                  R"({"sub":"ann","exp":1700000100,"nbf":"soon","iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":1700000100,"iss":"you","aud":"sandbox"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":1700000100,"iss":"me","aud":"other"})"),
        std::pair(kHeader, R"({"sub":"ann","exp":1700000100,"iss":"me"})"),
        std::pair(kHeader, R"({"sub":"","exp":1700000100,"iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, R"({"exp":1700000100,"iss":"me","aud":"sandbox"})"),
        std::pair(kHeader, "not json")));

TEST(Jwt, SignaturesAreChecked) {
  auto verifier = by_secret();
  std::string good = signed_by_secret(kHeader, kClaims);
  EXPECT_FALSE(verifier->verify(signed_by_secret(kHeader, kClaims, kSecret + "x"), kNow));
  EXPECT_FALSE(verifier->verify(good.substr(0, good.rfind('.') + 1), kNow));
  EXPECT_FALSE(verifier->verify(good.substr(0, good.rfind('.')), kNow));
  EXPECT_FALSE(verifier->verify(good + ".x", kNow));
  EXPECT_FALSE(verifier->verify(good + "=", kNow));
  EXPECT_FALSE(verifier->verify("", kNow));
  EXPECT_FALSE(verifier->verify(std::string(1 << 20, 'a'), kNow));
  std::string flipped = good;
  flipped[good.find('.') + 5] ^= 1;
  EXPECT_FALSE(verifier->verify(flipped, kNow));
}

struct KeyPair {
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key;
  std::string pem;
};

KeyPair key_pair(EVP_PKEY* made) {
  KeyPair pair{{made, ::EVP_PKEY_free}, ""};
  BIO* out = ::BIO_new(::BIO_s_mem());
  ::PEM_write_bio_PUBKEY(out, made);
  char* text = nullptr;
  long size = ::BIO_get_mem_data(out, &text);
  pair.pem.assign(text, static_cast<std::size_t>(size));
  ::BIO_free(out);
  return pair;
}

std::string signed_by_key(EVP_PKEY* key, const std::string& header) {
  std::string part = base64url(header) + "." + base64url(kClaims);
  EVP_MD_CTX* context = ::EVP_MD_CTX_new();
  ::EVP_DigestSignInit(context, nullptr, ::EVP_sha256(), nullptr, key);
  std::size_t size = 512;
  std::string signature(size, '\0');
  ::EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &size,
                   reinterpret_cast<const unsigned char*>(part.data()), part.size());
  ::EVP_MD_CTX_free(context);
  signature.resize(size);
  if (::EVP_PKEY_base_id(key) == EVP_PKEY_EC) {
    const auto* at = reinterpret_cast<const unsigned char*>(signature.data());
    ECDSA_SIG* parsed = ::d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(size));
    std::string raw(64, '\0');
    ::BN_bn2binpad(::ECDSA_SIG_get0_r(parsed), reinterpret_cast<unsigned char*>(raw.data()), 32);
    ::BN_bn2binpad(::ECDSA_SIG_get0_s(parsed), reinterpret_cast<unsigned char*>(raw.data()) + 32,
                   32);
    ::ECDSA_SIG_free(parsed);
    signature = raw;
  }
  return part + "." + base64url(signature);
}

TEST(Jwt, PublicKeysOfBothKinds) {
  KeyPair rsa = key_pair(::EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{2048}));
  KeyPair ec = key_pair(::EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  JwtOptions options;
  options.public_key = rsa.pem;
  auto by_rsa = std::move(*JwtVerifier::make(options));
  options.public_key = ec.pem;
  auto by_ec = std::move(*JwtVerifier::make(options));
  std::string rsa_token = signed_by_key(rsa.key.get(), R"({"alg":"RS256"})");
  std::string ec_token = signed_by_key(ec.key.get(), R"({"alg":"ES256"})");
  EXPECT_TRUE(by_rsa->verify(rsa_token, kNow));
  EXPECT_TRUE(by_ec->verify(ec_token, kNow));
  EXPECT_FALSE(by_rsa->verify(ec_token, kNow));
  EXPECT_FALSE(by_ec->verify(rsa_token, kNow));
  // The public key taken for a secret.
  EXPECT_FALSE(by_rsa->verify(signed_by_secret(kHeader, kClaims, rsa.pem), kNow));
}

TEST(Jwt, UnusableKeysAreRefusedAtTheStart) {
  JwtOptions options;
  EXPECT_EQ(*JwtVerifier::make(options), nullptr);
  options.secret = "short";
  EXPECT_FALSE(JwtVerifier::make(options));
  options.secret = "";
  options.public_key = "no pem";
  EXPECT_FALSE(JwtVerifier::make(options));
  options.public_key = key_pair(::EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")).pem;
  EXPECT_FALSE(JwtVerifier::make(options));
}

}  // namespace
}  // namespace asr
