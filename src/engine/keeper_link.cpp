#include "engine/keeper_link.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/on_strand.hpp"
#include "os/file.hpp"
#include "os/pidfd.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr const char* kSocketName = "keeper";
constexpr auto kTakeWithin = 10s;
constexpr auto kStoreWithin = 10s;
constexpr auto kEndWithin = 2s;
// One that dies sooner than this would die again: the next one waits as long.
constexpr auto kLivesAtLeast = 1s;
// Longer than starting another takes.
constexpr int kTries = 100;
constexpr auto kTryAgain = 20ms;
constexpr auto kRoomWithin = 1ms;

// Newer than the headers of some distributions.
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD

UniqueFd pidfd_of_peer(int socket) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return UniqueFd(fd);
  auto peer = peer_of(socket);
  auto pidfd = peer ? open_pidfd(peer->pid) : Result<UniqueFd>(UniqueFd());
  if (!pidfd || !*pidfd) return UniqueFd();
  // The number may be somebody else's by now; with the descriptor open it stays who it is.
  auto name = read_small_file(AT_FDCWD, "/proc/" + std::to_string(peer->pid) + "/comm");
  return name && *name == "asr-keeper" ? *std::move(pidfd) : UniqueFd();
}

}  // namespace

Result<UniqueFd> reach_keeper(int dir) {
  UniqueFd socket = TRY(connect_seqpacket(dir, kSocketName));
  Peer peer = TRY(peer_of(socket.get()));
  if (peer.uid != ::geteuid()) return fail(Errc::denied, "the keeper is another user's");
  return socket;
}

Result<Inheritance> take_all(int keeper, std::chrono::milliseconds patience) {
  auto deadline = Channel::Clock::now() + kTakeWithin;
  wire::TakeAll request;
  request.patience = patience;
  TRY(send_message(keeper, 1, request));
  Inheritance inheritance;
  std::vector<char> buffer(kMaxPacket);
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Channel::Clock::now());
    pollfd ready{keeper, POLLIN, 0};
    if (left <= 0ms || ::poll(&ready, 1, static_cast<int>(left.count())) == 0)
      return fail(Errc::timeout, "the keeper does not answer");
    Received received = TRY(receive_packet(keeper, buffer, Wait::dont_block));
    if (received.kind == Received::Kind::nothing) continue;
    if (received.kind == Received::Kind::closed) return fail(Errc::gone, "the keeper has ended");
    if (received.lost_descriptors) return fail(out_of_descriptors());
    auto frame = parse_frame(received.bytes);
    if (!frame) return fail(Errc::unsupported, "the keeper is of another release");
    if (auto kept = decode<wire::Kept>(*frame)) {
      inheritance.things.push_back(
          {std::move(kept->name), std::move(kept->blob), std::move(received.fds)});
      continue;
    }
    auto taken = decode<wire::Taken>(*frame);
    if (!taken || received.fds.size() != 1)
      return fail(Errc::unsupported, "the keeper sent a wrong answer");
    inheritance.epoch = taken->epoch;
    inheritance.lock = std::move(received.fds[0]);
    return inheritance;
  }
}

void end_keeper(int keeper) {
  UniqueFd pidfd = pidfd_of_peer(keeper);
  if (!pidfd) return;
  (void)send_signal(pidfd.get(), SIGKILL);
  (void)wait_for_end(pidfd.get(), kEndWithin);
}

KeeperLink::KeeperLink(const asio::any_io_executor& executor, Settings settings)
    : strand_(asio::make_strand(executor)), settings_(std::move(settings)) {}

Result<void> KeeperLink::open(UniqueFd connected, std::function<void()> renewed) {
  renewed_ = std::move(renewed);
  dir_ = TRY(open_dir(AT_FDCWD, settings_.dir));
  if (!connected) return start();
  auto peer = peer_of(connected.get());
  watch(peer ? peer->pid : -1, pidfd_of_peer(connected.get()));
  return use(std::move(connected));
}

Result<void> KeeperLink::start() {
  UniqueFd listener = TRY(listen_seqpacket(dir_.get(), kSocketName));
  const char* argv[] = {"agent-sandbox-keeper", "keeper", nullptr};
  std::array<int, 2> inherit{listener.get(), settings_.lock.get()};
  Spawned spawned = TRY(spawn_image(settings_.image.get(), argv, inherit));
  watch(spawned.pid, std::move(spawned.pidfd));
  started_ = Channel::Clock::now();
  UniqueFd connected = TRY(connect_seqpacket(dir_.get(), kSocketName));
  TRY(use(std::move(connected)));
  wire::TakeAll first;
  first.patience = settings_.patience;
  first.least_epoch = settings_.epoch;
  return channel_->send(0, first);
}

Result<void> KeeperLink::use(UniqueFd socket) {
  channel_ = std::make_shared<Channel>(strand_, std::move(socket));
  if (!channel_->is_open()) return fail(out_of_descriptors());
  channel_->open([](const Letter&) {},
                 [weak = weak_from_this()] {
                   auto self = weak.lock();
                   if (!self || self->ending_) return;
                   // Later: whoever noticed it is in the middle of using the channel.
                   asio::post(self->strand_, [self] {
                     asio::co_spawn(self->strand_, self->start_another(), asio::detached);
                   });
                 });
  return {};
}

void KeeperLink::watch(int pid, UniqueFd pidfd) {
  std::lock_guard lock(process_mutex_);
  pid_ = pid;
  pidfd_ = std::move(pidfd);
}

void KeeperLink::end_now() noexcept {
  if (!ending_.exchange(true)) reap(0ms);
}

void KeeperLink::reap(std::chrono::milliseconds within) noexcept {
  std::lock_guard lock(process_mutex_);
  if (pidfd_ && !wait_for_end(pidfd_.get(), within)) {
    (void)send_signal(pidfd_.get(), SIGKILL);
    (void)wait_for_end(pidfd_.get(), kEndWithin);
  }
  pidfd_.reset();
  // Only if it is our child: one that an earlier daemon started is not.
  if (pid_ > 0) (void)::waitpid(pid_, nullptr, WNOHANG);
  pid_ = -1;
}

asio::awaitable<void> KeeperLink::start_another() {
  auto self = shared_from_this();
  outgoing_.clear();  // All of it will be said again.
  reap(0ms);
  for (;;) {
    if (Channel::Clock::now() - started_ < kLivesAtLeast) {
      asio::steady_timer pause(strand_, kLivesAtLeast);
      co_await pause.async_wait(asio::use_awaitable);
    }
    if (ending_) co_return;
    auto started = start();
    started_ = Channel::Clock::now();
    if (settings_.log)
      settings_.log(started ? std::string("the keeper has ended; another one was started")
                            : "no keeper: " + started.error().what);
    if (started) break;
  }
  renewed_();
}

void KeeperLink::drain() {
  while (!outgoing_.empty()) {
    Outgoing& next = outgoing_.front();
    std::vector<int> borrowed;
    for (const UniqueFd& fd : next.fds) borrowed.push_back(fd.get());
    auto sent =
        std::visit([&](const auto& message) { return channel_->send(next.id, message, borrowed); },
                   next.message);
    if (!sent && sent.error().code == Errc::exhausted) {
      if (!std::exchange(draining_, true)) asio::co_spawn(strand_, drain_later(), asio::detached);
      return;
    }
    if (!sent) return outgoing_.clear();  // It is gone; the next one is told all of it.
    outgoing_.pop_front();
  }
}

asio::awaitable<void> KeeperLink::drain_later() {
  auto self = shared_from_this();
  asio::steady_timer pause(strand_, kRoomWithin);
  co_await pause.async_wait(asio::use_awaitable);
  draining_ = false;
  drain();
}

void KeeperLink::enqueue(Outgoing outgoing) {
  if (ending_) return;
  outgoing_.push_back(std::move(outgoing));
  if (outgoing_.size() == 1) drain();
}

asio::awaitable<Result<void>> KeeperLink::keep_on_strand(Keepsake thing) {
  auto self = shared_from_this();
  std::size_t size = thing.name.size() + thing.blob.size();
  if (size > kMaxPacket - 64) co_return fail(Errc::invalid, "too much to keep of one thing");
  for (int tries = 0; tries < kTries && !ending_; ++tries) {
    if (!channel_->is_open()) {
      asio::steady_timer pause(strand_, kTryAgain);
      co_await pause.async_wait(asio::use_awaitable);
      continue;
    }
    Outgoing outgoing;
    auto box = channel_->box();
    outgoing.id = box->id();
    outgoing.message = wire::Keep{thing.name, thing.blob};
    for (const UniqueFd& fd : thing.fds) {
      outgoing.fds.emplace_back(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
      if (!outgoing.fds.back()) co_return fail(out_of_descriptors());
    }
    enqueue(std::move(outgoing));
    auto answer = co_await box->next(Channel::Clock::now() + kStoreWithin);
    if (!answer && answer.error().code == Errc::timeout)
      co_return fail(Errc::timeout, "the keeper does not answer");
    if (!answer) continue;  // It died; the next one is asked.
    if (answer->as<wire::Stored>()) co_return Result<void>();
    auto refusal = answer->as<wire::NotStored>();
    co_return fail(Errc::exhausted, refusal ? refusal->what : "the keeper sent a wrong answer");
  }
  co_return fail(Errc::os, "there is no keeper", "see the engine's log");
}

asio::awaitable<Result<void>> KeeperLink::keep(Keepsake thing) {
  return on_strand(strand_, keep_on_strand(std::move(thing)));
}

void KeeperLink::save(Keepsake thing) {
  auto shared = std::make_shared<Keepsake>(std::move(thing));
  asio::post(strand_, [self = shared_from_this(), shared] {
    self->enqueue(
        {0, wire::Keep{std::move(shared->name), std::move(shared->blob)}, std::move(shared->fds)});
  });
}

void KeeperLink::forget(std::string name) {
  asio::post(strand_, [self = shared_from_this(), name = std::move(name)] {
    self->enqueue({0, wire::Forget{name}, {}});
  });
}

asio::awaitable<void> KeeperLink::end_on_strand(bool quit) {
  auto self = shared_from_this();
  // What was said before must arrive: a program's end, say, or that nobody wants something any
  // more.
  for (int tries = 0; tries < kTries && !outgoing_.empty(); ++tries) {
    asio::steady_timer pause(strand_, kRoomWithin);
    co_await pause.async_wait(asio::use_awaitable);
  }
  ending_ = true;
  if (quit) (void)channel_->send(0, wire::Quit{});
  channel_->close();
  if (quit) reap(kEndWithin);
}

asio::awaitable<void> KeeperLink::quit() { return on_strand(strand_, end_on_strand(true)); }
asio::awaitable<void> KeeperLink::leave() { return on_strand(strand_, end_on_strand(false)); }

}  // namespace asr
