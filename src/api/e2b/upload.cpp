#include "api/e2b/upload.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "api/e2b/file_work.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

constexpr std::uint32_t kMode = 0644;

}  // namespace

Upload::Upload(EnvdCallPtr call, std::string path, std::unique_ptr<FileWrite> file)
    : call_(std::move(call)),
      path_(std::move(path)),
      file_(std::move(file)),
      pipe_(call_->parts.executor, file_->take_pipe().release()) {
  if (call_->session->history()) hash_ = std::make_unique<ContentHash>();
}

asio::awaitable<Result<std::unique_ptr<Upload>>> Upload::open(EnvdCallPtr call, std::string path,
                                                              FileAttributes metadata) {
  auto opening =
      call->sandbox->open_write_with(path, WriteMode::overwrite, kMode, call->user, metadata);
  auto file = co_await std::move(opening);
  std::vector<std::string> made;
  if (!file && file.error().code == Errc::denied && call->user != "root") {
    auto looking = missing_above(call, path);
    made = co_await std::move(looking);
    if (made.empty()) made.push_back(path);
    auto forcing =
        call->sandbox->open_write_with(path, WriteMode::overwrite, kMode, "root", metadata);
    auto forced = co_await std::move(forcing);
    if (forced || forced.error().code != Errc::unsupported) file = std::move(forced);
  }
  if (!file) co_return fail(file.error());
  std::unique_ptr<Upload> upload(new Upload(std::move(call), std::move(path), *std::move(file)));
  upload->made_ = std::move(made);
  co_return upload;
}

asio::awaitable<Result<void>> Upload::write(std::string_view data) {
  if (hash_) hash_->feed(data);
  if (broken_) co_return Result<void>();
  boost::system::error_code ec;
  co_await asio::async_write(pipe_, asio::buffer(data.data(), data.size()),
                             asio::redirect_error(asio::use_awaitable, ec));
  // Whoever writes it has stopped reading and says why itself.
  broken_ = static_cast<bool>(ec);
  co_return Result<void>();
}

asio::awaitable<Result<void>> Upload::finish() {
  pipe_.close();
  auto finishing = file_->finish();
  CO_TRY(co_await std::move(finishing));
  if (!made_.empty()) {
    auto giving = give_to_user(call_, std::move(made_));
    CO_TRY(co_await std::move(giving));
  }
  if (hash_) {
    json::object step = small_step("file", "write");
    put_bytes(step, "path", path_);
    if (call_->user != "user") step["user"] = repair_utf8(call_->user);
    hash_->describe(step);
    step["mode"] = kMode;
    call_->session->note(std::move(step));
  }
  co_return Result<void>();
}

}  // namespace asr
