#include "api/e2b/signature.hpp"

#include <charconv>

#include "net/json.hpp"
#include "store/secret_box.hpp"

namespace asr {

Result<std::optional<SignedRequest>> signed_request(const RequestHead& head) {
  auto signature = head.parameter("signature");
  if (!signature) return std::optional<SignedRequest>();
  SignedRequest request;
  request.signature = *std::move(signature);
  request.path = head.parameter("path").value_or("");
  request.user = head.parameter("username").value_or("");
  request.operation = head.method == "GET" || head.method == "HEAD" ? "read" : "write";
  if (auto text = head.parameter("signature_expiration")) {
    std::int64_t value = 0;
    auto [end, ec] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (ec != std::errc() || end != text->data() + text->size())
      return fail(Errc::invalid, "signature_expiration is no number");
    request.expires = value;
  }
  return std::optional<SignedRequest>(std::move(request));
}

std::string signature_of(const SignedRequest& request, std::string_view token) {
  std::string text = request.path + ":" + request.operation + ":" + request.user + ":";
  text += token;
  if (request.expires) text += ":" + std::to_string(*request.expires);
  std::string coded = base64(sha256(text));
  while (coded.ends_with('=')) coded.pop_back();
  return "v1_" + coded;
}

bool is_signed_with(const SignedRequest& request, std::string_view token) {
  return constant_time_equal(signature_of(request, token), request.signature);
}

bool is_expired(const SignedRequest& request, std::int64_t now_s) noexcept {
  return request.expires && *request.expires < now_s;
}

}  // namespace asr
