#include "base/id.hpp"

#include <sys/random.h>

#include <cstdlib>
#include <vector>

namespace asr {

std::string random_name(std::size_t length) {
  // 32 symbols, so that a byte masked to five bits is unbiased; i, l, o and u are left out because
  // people read these names aloud.
  static constexpr char kAlphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";
  std::vector<unsigned char> bytes(length);
  if (::getrandom(bytes.data(), length, 0) != static_cast<ssize_t>(length)) std::abort();
  std::string name(length, '0');
  for (std::size_t i = 0; i < length; ++i) name[i] = kAlphabet[bytes[i] & 31U];
  return name;
}

}  // namespace asr
