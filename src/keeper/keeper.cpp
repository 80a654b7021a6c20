#include "keeper/keeper.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "keeper/lock_in.hpp"
#include "os/seqpacket.hpp"
#include "wire/keeper_messages.hpp"
#include "wire/send.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

// How often it looks at the clock while it is alone.
constexpr auto kGlance = 1s;

bool is_ours(int socket) {
  auto peer = peer_of(socket);
  return peer && peer->uid == ::geteuid();
}

}  // namespace

Keeper::Keeper(UniqueFd listener, UniqueFd lock)
    : listener_(std::move(listener)), lock_(std::move(lock)), buffer_(kMaxPacket) {}

bool Keeper::time_is_up(std::chrono::milliseconds empty_for) const {
  if (daemon_) return false;
  auto alone = Clock::now() - alone_since_;
  return alone >= patience_ || (things_.empty() && alone >= empty_for);
}

void Keeper::welcome() {
  UniqueFd comer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (comer && is_ours(comer.get())) daemon_ = std::move(comer);
}

void Keeper::forget(const std::string& name) {
  things_.erase(name);
  std::string below = name + "/";
  auto first = things_.lower_bound(below);
  auto last = first;
  while (last != things_.end() && last->first.starts_with(below)) ++last;
  things_.erase(first, last);
}

// To a daemon that is slow to read: it waits. There is nobody else to serve.
Result<void> Keeper::hand_out(std::uint32_t id) {
  auto send = [&](const auto& message, const std::vector<UniqueFd>& fds) -> Result<void> {
    std::vector<int> borrowed;
    for (const UniqueFd& fd : fds) borrowed.push_back(fd.get());
    return send_message(daemon_.get(), id, message, borrowed);
  };
  for (const auto& [name, thing] : things_) {
    wire::Kept kept;
    kept.name = name;
    kept.blob = thing.blob;
    TRY(send(kept, thing.fds));
  }
  wire::Taken taken;
  taken.epoch = epoch_;
  std::array<int, 1> lock{lock_.get()};
  return send_message(daemon_.get(), id, taken, lock);
}

// False when it is to end.
bool Keeper::answer(const Frame& frame, std::vector<UniqueFd> fds, bool lost_descriptors) {
  auto say = [&](const auto& message) { (void)send_message(daemon_.get(), frame.id, message); };
  auto refuse = [&](std::string why) {
    wire::NotStored refusal;
    refusal.what = std::move(why);
    say(refusal);
  };
  if (auto take = decode<wire::TakeAll>(frame)) {
    patience_ = take->patience;
    epoch_ = std::max(epoch_ + 1, take->least_epoch);
    if (!hand_out(frame.id)) daemon_.reset();
  } else if (auto keep = decode<wire::Keep>(frame)) {
    if (lost_descriptors) {
      refuse("the keeper has too many open files");
      return true;
    }
    things_.insert_or_assign(std::move(keep->name), Thing{std::move(keep->blob), std::move(fds)});
    say(wire::Stored{});
  } else if (auto unwanted = decode<wire::Forget>(frame)) {
    forget(unwanted->name);
  } else if (decode<wire::Quit>(frame)) {
    return false;
  } else {
    refuse("the keeper does not understand this message");
  }
  return true;
}

int Keeper::serve(std::chrono::milliseconds empty_for) {
  while (!time_is_up(empty_for)) {
    pollfd ready{daemon_ ? daemon_.get() : listener_.get(), POLLIN, 0};
    auto glance = std::min<std::chrono::milliseconds>({kGlance, patience_, empty_for});
    if (::poll(&ready, 1, daemon_ ? -1 : static_cast<int>(glance.count())) <= 0) continue;
    if (!daemon_) {
      welcome();
      continue;
    }
    auto received = receive_packet(daemon_.get(), buffer_);
    auto frame = received && received->kind == Received::Kind::packet ? parse_frame(received->bytes)
                                                                      : std::nullopt;
    if (frame) {
      if (!answer(*frame, std::move(received->fds), received->lost_descriptors)) return 0;
      if (daemon_) continue;
    }
    // Gone, or talking nonsense, which comes to the same.
    daemon_.reset();
    alone_since_ = Clock::now();
  }
  return 0;
}

int run_keeper(int listener, int lock) {
  // Again, by ourselves: who connects is told by the kernel whom it talks to.
  if (::listen(listener, 8) != 0) return 1;
  Keeper keeper{UniqueFd(listener), UniqueFd(lock)};
  if (!lock_in()) return 1;
  return keeper.serve();
}

}  // namespace asr
