// The first words of a TLS client. The first byte says how large the pieces are in which they come.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "net/client_hello.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::size_t piece = data[0] + 1U;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  asr::ClientHelloReader whole;
  whole.feed(bytes);
  asr::ClientHelloReader parts;
  for (std::size_t at = 0; at < bytes.size(); at += piece) parts.feed(bytes.substr(at, piece));
  // However it comes, it means the same.
  check(whole.state() == parts.state() && whole.host() == parts.host() &&
        whole.has_encrypted_hello() == parts.has_encrypted_hello());
  check(whole.host().size() <= asr::ClientHelloReader::kMostBytes);
  return 0;
}
