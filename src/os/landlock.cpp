#include "os/landlock.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace asr {
namespace {

// The first three fields of landlock_ruleset_attr, by value: headers may be older than the kernel.
struct RulesetAttributes {
  std::uint64_t handled_access_fs = 0;
  std::uint64_t handled_access_net = 0;
  std::uint64_t scoped = 0;
};
constexpr std::uint64_t kScopeAbstractUnixSocket = 1u << 0;
constexpr std::uint64_t kScopeSignal = 1u << 1;
constexpr unsigned kAskForVersion = 1u << 0;

}  // namespace

Result<int> landlock_abi() {
  long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskForVersion);
  if (version >= 1) return static_cast<int>(version);
  return fail(Errc::unsupported, errno == EOPNOTSUPP ? "Landlock is off" : "there is no Landlock",
              "boot with landlock in the lsm= list of a kernel that has CONFIG_SECURITY_LANDLOCK");
}

int restrict_scopes(int abi) noexcept {
  if (abi < kLandlockScopes) {
    errno = EOPNOTSUPP;
    return -1;
  }
  RulesetAttributes attributes{.scoped = kScopeAbstractUnixSocket | kScopeSignal};
  long ruleset = ::syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (ruleset < 0) return -1;
  long result = ::syscall(SYS_landlock_restrict_self, ruleset, 0);
  int err = errno;
  ::close(static_cast<int>(ruleset));
  errno = err;
  return result == 0 ? 0 : -1;
}

}  // namespace asr
