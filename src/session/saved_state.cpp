#include "session/saved_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "wire/saved_files.hpp"

namespace asr {

namespace {

constexpr std::size_t kAtOnce = 1 << 20;
constexpr std::uint64_t kTurn = 4 << 20;  // Then others are served.

Result<UniqueFd> make_nameless(const std::filesystem::path& folder) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  UniqueFd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) return fail_errno("make a file in " + folder.native());
  return file;
}

// All that comes out of a pipe.
asio::awaitable<Result<std::uint64_t>> drain(UniqueFd pipe, std::shared_ptr<UniqueFd> file,
                                             std::uint64_t most) {
  asio::posix::stream_descriptor from(co_await asio::this_coro::executor, pipe.release());
  std::uint64_t bytes = 0;
  for (std::uint64_t turn = kTurn;;) {
    if (bytes > most)
      co_return fail(Errc::exhausted, "there is no room to save the session's files",
                     "remove checkpoints, snapshots and branches, or large files");
    if (bytes >= turn) {
      turn = bytes + kTurn;
      co_await asio::post(asio::use_awaitable);
    }
    ssize_t n = ::splice(from.native_handle(), nullptr, file->get(), nullptr, kAtOnce,
                         SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (n == 0) co_return bytes;
    if (n > 0) {
      bytes += static_cast<std::uint64_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) co_return fail_errno("keep the files of a session");
    boost::system::error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await from.async_wait(asio::posix::stream_descriptor::wait_read, token);
    if (ec) co_return fail(Errc::gone, "the session ended while it was saved");
  }
}

// The last entry says so: its two heads and its attributes take a block each, and two empty ones
// follow.
bool is_whole(int file, std::uint64_t bytes) {
  std::array<char, 2560> end{};
  if (bytes < end.size()) return false;
  if (::pread(file, end.data(), end.size(), static_cast<off_t>(bytes - end.size())) !=
      static_cast<ssize_t>(end.size()))
    return false;
  return std::string_view(end.data(), end.size()).find(wire::kSavedEnd) != std::string_view::npos;
}

}  // namespace

Moments moments_of(const SavedState& state, const Sandbox& now) {
  return state.sandbox == now.id().text ? Moments::of_one_sandbox : Moments::of_two;
}

asio::awaitable<Result<std::shared_ptr<const SavedFiles>>> save_files(
    std::shared_ptr<Sandbox> sandbox, std::filesystem::path folder, std::uint64_t most,
    std::vector<std::string> only) {
  auto file = std::make_shared<UniqueFd>(CO_TRY(make_nameless(folder)));
  auto saving = sandbox->save_files(std::move(only));
  UniqueFd pipe = CO_TRY(co_await std::move(saving));
  auto draining = drain(std::move(pipe), file, most);
  std::uint64_t bytes = CO_TRY(co_await std::move(draining));
  if (!is_whole(file->get(), bytes))
    co_return fail(Errc::exhausted, "the files of the session could not be saved",
                   "look at how many there are, and how deep their folders");
  auto saved = std::make_shared<SavedFiles>();
  saved->file = std::move(*file);
  saved->bytes = bytes;
  co_return saved;
}

asio::awaitable<Result<void>> restore_files(std::shared_ptr<Sandbox> sandbox,
                                            std::shared_ptr<const SavedFiles> files) {
  // Opened anew: several read it at once, each from its beginning, and none may write.
  std::string path = "/proc/self/fd/" + std::to_string(files->file.get());
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader) co_return fail_errno("open saved files");
  auto restoring = sandbox->restore_files(std::move(reader));
  CO_TRY(co_await std::move(restoring));
  co_return Result<void>();
}

std::uint64_t SavedState::bytes() const noexcept {
  std::uint64_t sum = files ? files->bytes : 0;
  for (const SavedContext& context : contexts) sum += context.bytes;
  return sum;
}

json::object json_of(const SavedState& state) {
  json::array contexts;
  std::uint64_t memory = 0;
  for (const SavedContext& context : state.contexts) {
    contexts.push_back(json_of(context));
    memory += context.bytes;
  }
  return {{"files_bytes", state.files ? state.files->bytes : 0},
          {"memory_bytes", memory},
          {"contexts", std::move(contexts)},
          {"programs_lost", state.programs}};
}

}  // namespace asr
