// What an interpreter says, taken apart. It comes from inside a sandbox: nothing in it is believed
// further than that it is what the program wanted to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

struct KernelEvent {
  enum class Kind { ready, result, error, input, done, completions, saving, saved };
  Kind kind = Kind::ready;
  std::uint64_t id = 0;  // of the request it belongs to
  json::object fields;
};

// One JSON object per line.
class KernelEvents {
 public:
  static constexpr std::size_t kLongestLine = 32 << 20;

  // An error once nothing sensible can follow.
  Result<void> feed(std::string_view bytes);
  // The next that is complete. Errc::internal for a line that is none.
  Result<std::optional<KernelEvent>> next();

 private:
  std::string pending_;
  std::size_t searched_ = 0;  // of pending_, without finding the end of a line
};

// A request, as kernels read it.
std::string kernel_request(std::string_view op, std::uint64_t id, std::string_view payload);

}  // namespace asr
