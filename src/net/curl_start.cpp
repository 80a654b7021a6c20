#include "net/curl_start.hpp"

#include <curl/curl.h>

#include <mutex>

namespace asr {

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { ::curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace asr
