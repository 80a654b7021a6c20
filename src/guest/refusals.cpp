#include "guest/refusals.hpp"

#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>

namespace asr {

namespace {

constexpr int kMostAtOnce = 64;

// With room for what a later kernel may add to the end.
union Call {
  seccomp_notif told;
  std::array<char, 512> room;
};
static_assert(sizeof(Call) > sizeof(seccomp_notif));

}  // namespace

bool RefusalListener::somebody_waits() const noexcept {
  pollfd ready{listener_.get(), POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0;
}

void RefusalListener::answer_some() {
  // Asked each time: to receive what is not there is to wait for it.
  for (int i = 0; i < kMostAtOnce && somebody_waits(); ++i) answer_one();
}

void RefusalListener::answer_one() {
  Call call;
  call.room.fill(0);  // The kernel insists.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
    // It died, or a signal took it away: it asks again if it still wants to. Anything else would
    // keep them all waiting; without a listener the kernel refuses by itself.
    if (errno != ENOENT && errno != EINTR) drop();
    return;
  }
  auto number = static_cast<std::uint32_t>(call.told.data.nr);
  SyscallArgs args{};
  std::copy(std::begin(call.told.data.args), std::end(call.told.data.args), args.begin());
  seccomp_notif_resp answer{};
  answer.id = call.told.id;
  answer.error = -error_for(number, args);
  // Counted once it is known: one that a signal took away comes again.
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0) ++counts_[number];
}

int RefusalListener::error_for(std::uint32_t number, const SyscallArgs& args) {
  if (!rules_) rules_ = gate_rules(tier_, gate_secret_);
  Verdict verdict = judge(*rules_, number, args);
  return verdict.kind == Verdict::Kind::refuse ? verdict.err : EPERM;
}

std::optional<CallCounts> RefusalListener::counts() const {
  if (!listener_) return std::nullopt;
  return counts_;
}

CallCounts more_than(const CallCounts& before, const CallCounts& now) {
  CallCounts more;
  for (const auto& [number, count] : now) {
    auto then = before.find(number);
    std::uint64_t already = then == before.end() ? 0 : then->second;
    if (count > already) more[number] = count - already;
  }
  return more;
}

}  // namespace asr
