#include "engine/channel.hpp"

#include <fcntl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace asr {

namespace {

// More unread answers than any request has: a peer that sends them is not answering but flooding.
constexpr std::size_t kMostLetters = 4096;
constexpr std::size_t kMostBytes = 8 << 20;
constexpr std::size_t kMostDescriptors = 6 * kMaxPacketFds;
// Of a request's id: the rest is the epoch.
constexpr unsigned kCounterBits = 22;
constexpr std::uint32_t kCounterMask = (1U << kCounterBits) - 1;

}  // namespace

Channel::Channel(asio::any_io_executor strand, UniqueFd socket, std::uint32_t epoch)
    : strand_(std::move(strand)),
      socket_(std::move(socket)),
      readable_(strand_),
      epoch_(epoch << kCounterBits) {
  // Out of descriptors: the channel is born closed, and whoever uses it is told so.
  UniqueFd copy(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 3));
  boost::system::error_code ec;
  if (copy) readable_.assign(copy.get(), ec);
  open_ = copy && !ec;
  if (open_) copy.release();
}

void Channel::open(std::function<void(Letter)> unasked, std::function<void()> closed) {
  unasked_ = std::move(unasked);
  closed_ = std::move(closed);
  if (!open_) {
    if (auto gone = std::exchange(closed_, nullptr)) gone();
    return;
  }
  asio::co_spawn(strand_, read_letters(), asio::detached);
}

void Channel::close() {
  if (!open_) return;
  open_ = false;
  boost::system::error_code ignored;
  readable_.close(ignored);
  socket_.reset();
  for (auto& [id, box] : boxes_) box->bell_.cancel();
  unasked_ = nullptr;
  if (auto closed = std::exchange(closed_, nullptr)) closed();
}

// False when the channel is at its end.
bool Channel::take() {
  // One for all channels of a thread, not one for each: they are many, and what they say is short.
  thread_local std::vector<char> buffer(kMaxPacket);
  // A few at a time: a peer that never stops talking must not keep the thread from others.
  for (int packets = 0; packets < 64; ++packets) {
    auto received = receive_packet(socket_.get(), buffer, Wait::dont_block);
    if (!received || received->kind == Received::Kind::closed) return false;
    if (received->kind == Received::Kind::nothing) return true;
    auto frame = parse_frame(received->bytes);
    if (!frame) return false;
    Letter letter{frame->type, frame->id, std::string(frame->body), std::move(received->fds),
                  received->lost_descriptors};
    auto found = boxes_.find(frame->id);
    if (found == boxes_.end()) {
      if (unasked_) unasked_(std::move(letter));
      if (!open_) return true;
      continue;
    }
    Box& box = *found->second;
    if (box.is_full()) {
      if (!box.lossy_) return false;
      box.lost_ = true;
      continue;
    }
    box.bytes_ += letter.body.size();
    box.descriptors_ += letter.fds.size();
    box.letters_.push_back(std::move(letter));
    box.bell_.cancel();
  }
  return true;
}

asio::awaitable<void> Channel::read_letters() {
  auto self = shared_from_this();
  while (open_) {
    if (!take()) {
      close();
      break;
    }
    if (!open_) break;
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await readable_.async_wait(asio::posix::stream_descriptor::wait_read, token);
    if (ec && open_) close();
  }
}

Channel::Box::Box(std::shared_ptr<Channel> channel, std::uint32_t id)
    : channel_(std::move(channel)), id_(id), bell_(channel_->strand_) {}

bool Channel::Box::is_full() const noexcept {
  return letters_.size() >= kMostLetters || bytes_ >= kMostBytes ||
         descriptors_ >= kMostDescriptors;
}

Channel::Box::~Box() { channel_->boxes_.erase(id_); }

std::unique_ptr<Channel::Box> Channel::box() {
  std::uint32_t id = 0;
  do {
    last_ = (last_ + 1) & kCounterMask;
    id = epoch_ | last_;
  } while (id == 0 || boxes_.contains(id));
  return box_for(id);
}

std::unique_ptr<Channel::Box> Channel::box_for_unasked() { return box_for(0); }

std::unique_ptr<Channel::Box> Channel::box_for(std::uint32_t id) {
  auto box = std::make_unique<Box>(shared_from_this(), id);
  boxes_.insert_or_assign(id, box.get());
  return box;
}

UniqueFd Channel::copy_socket() const {
  return UniqueFd(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 3));
}

void Channel::Box::give_up() {
  given_up_ = true;
  bell_.cancel();
}

asio::awaitable<Result<Letter>> Channel::Box::next(Clock::time_point deadline) {
  for (;;) {
    if (!letters_.empty()) {
      Letter letter = std::move(letters_.front());
      letters_.pop_front();
      bytes_ -= letter.body.size();
      descriptors_ -= letter.fds.size();
      co_return letter;
    }
    if (!channel_->open_) co_return fail(Errc::gone, "the sandbox has ended");
    if (given_up_) co_return fail(Errc::not_found, "the sandbox knows nothing of it");
    if (Clock::now() >= deadline)
      co_return fail(Errc::timeout, "the sandbox did not answer in time");
    bell_.expires_at(deadline);
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await bell_.async_wait(token);
  }
}

}  // namespace asr
