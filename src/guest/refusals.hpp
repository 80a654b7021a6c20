// Calls of this sandbox's programs that its gate refuses: each waits until pid 1 has counted it and
// given it the error that the rules have for it. None is ever let through.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/unique_fd.hpp"
#include "policy/syscalls.hpp"

namespace asr {

using CallCounts = std::map<std::uint32_t, std::uint64_t>;  // by number

class RefusalListener {
 public:
  RefusalListener() = default;  // Nobody tells.
  RefusalListener(UniqueFd listener, SyscallTier tier, std::uint64_t gate_secret)
      : listener_(std::move(listener)), tier_(tier), gate_secret_(gate_secret) {}

  int waits_on() const noexcept { return listener_.get(); }
  // A bounded number of those that wait: others wait for pid 1 as well.
  void answer_some();
  // Since the beginning; nothing if it is not told.
  std::optional<CallCounts> counts() const;
  // For a forked child, which answers nobody.
  void drop() noexcept { listener_.reset(); }

 private:
  bool somebody_waits() const noexcept;
  void answer_one();
  int error_for(std::uint32_t number, const SyscallArgs& args);

  UniqueFd listener_;
  SyscallTier tier_ = SyscallTier::strict;
  std::uint64_t gate_secret_ = 0;
  std::optional<SyscallRules> rules_;  // once they are needed: most sandboxes refuse nothing
  CallCounts counts_;
};

// What came since then.
CallCounts more_than(const CallCounts& before, const CallCounts& now);

}  // namespace asr
