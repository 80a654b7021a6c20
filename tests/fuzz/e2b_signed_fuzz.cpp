// Queries of signed addresses.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/e2b/signature.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  asr::RequestHead head;
  head.method = size % 2 == 0 ? "GET" : "POST";
  head.path = "/files";
  head.query.assign(reinterpret_cast<const char*>(data), size);
  auto request = asr::signed_request(head);
  if (!request || !*request) return 0;
  // What was not signed with it is not taken for it, what was is.
  check(!asr::is_signed_with(**request, "token"));
  (*request)->signature = asr::signature_of(**request, "token");
  check(asr::is_signed_with(**request, "token"));
  (void)asr::is_expired(**request, 1'700'000'000);
  return 0;
}
