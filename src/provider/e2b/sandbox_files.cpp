// Files of a remote sandbox: by the daemon's calls where it has them, by small programs where not.
#include <algorithm>

#include "provider/e2b/paths.hpp"
#include "provider/e2b/sandbox.hpp"

namespace asr::e2b {

namespace {

class RemoteWatch final : public Watch {
 public:
  explicit RemoteWatch(std::shared_ptr<MessageStream> stream) : stream_(std::move(stream)) {}
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;
  ~RemoteWatch() override { stream_->cancel(); }

  asio::awaitable<Result<std::vector<WatchEvent>>> next() override {
    auto stream = stream_;
    for (;;) {
      auto reading = stream->next();
      auto message = CO_TRY(co_await std::move(reading));
      if (!message) co_return fail(Errc::gone, "nobody watches any more");
      auto event = CO_TRY(watch_event_in(*message));
      if (event) co_return std::vector<WatchEvent>{std::move(*event)};
    }
  }
  void close() override { stream_->cancel(); }

 private:
  std::shared_ptr<MessageStream> stream_;
};

}  // namespace

asio::awaitable<Result<FileInfo>> RemoteSandbox::stat(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto asking = ask(core_, "filesystem.Filesystem/Stat", json::object{{"path", path}}, user);
  json::value answer = CO_TRY(co_await std::move(asking));
  if (!answer.is_object() || !answer.get_object().contains("entry"))
    co_return fail(Errc::provider, "the provider's answer has no entry");
  co_return file_in(answer.get_object().at("entry"));
}

asio::awaitable<Result<DirectoryPage>> RemoteSandbox::list(std::string path, std::uint64_t cursor,
                                                           std::uint32_t most, std::string user) {
  CO_TRY(check_path(path));
  auto asking =
      ask(core_, "filesystem.Filesystem/ListDir", json::object{{"path", path}, {"depth", 1}}, user);
  json::value answer = CO_TRY(co_await std::move(asking));
  auto all = CO_TRY(files_in(answer));
  std::sort(all.begin(), all.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  DirectoryPage page;
  std::size_t begin = std::min<std::uint64_t>(cursor, all.size());
  std::size_t end = std::min<std::uint64_t>(begin + most, all.size());
  page.entries.assign(std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(begin)),
                      std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(end)));
  if (end < all.size()) page.next = end;
  co_return page;
}

asio::awaitable<Result<void>> RemoteSandbox::make_directory(std::string path, std::uint32_t mode,
                                                            std::string user) {
  CO_TRY(check_path(path));
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  auto core = core_;
  auto asking = ask(core, "filesystem.Filesystem/MakeDir", json::object{{"path", path}}, user);
  auto made = co_await std::move(asking);
  // It is there already, which is what was wanted.
  if (!made && made.error().code == Errc::conflict) co_return Result<void>();
  if (!made && made.error().what.find("not a directory") != std::string::npos)
    co_return fail(Errc::conflict, path + " is there and is not a directory");
  CO_TRY(std::move(made));
  if (mode == 0755) co_return Result<void>();
  auto changing = change_mode(std::move(path), mode, std::move(user));
  co_return co_await std::move(changing);
}

asio::awaitable<Result<void>> RemoteSandbox::move(std::string from, std::string to,
                                                  std::string user) {
  CO_TRY(check_path(from));
  CO_TRY(check_path(to));
  auto asking = ask(core_, "filesystem.Filesystem/Move",
                    json::object{{"source", from}, {"destination", to}}, user, Repeat::if_unsent);
  CO_TRY(co_await std::move(asking));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteSandbox::copy(std::string from, std::string to,
                                                  std::string user) {
  CO_TRY(check_path(from));
  CO_TRY(check_path(to));
  auto running = run_helper(core_, {"cp", "-aT", "--", from, to}, user);
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

// The daemon does not mind if there is nothing; we do.
asio::awaitable<Result<void>> RemoteSandbox::remove(std::string path, std::string user) {
  CO_TRY(check_path(path));
  auto core = core_;
  auto looking = ask(core, "filesystem.Filesystem/Stat", json::object{{"path", path}}, user);
  CO_TRY(co_await std::move(looking));
  auto asking = ask(core, "filesystem.Filesystem/Remove", json::object{{"path", path}}, user);
  CO_TRY(co_await std::move(asking));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteSandbox::change_mode(std::string path, std::uint32_t mode,
                                                         std::string user) {
  CO_TRY(check_path(path));
  char octal[8];
  std::snprintf(octal, sizeof octal, "%o", mode & 07777);
  auto running = run_helper(core_, {"chmod", "--", octal, path}, user);
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteSandbox::change_owner(std::string path, std::string owner,
                                                          std::string user) {
  CO_TRY(check_path(path));
  auto running = run_helper(core_, {"chown", "-h", "--", owner + ":", path}, user);
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

asio::awaitable<Result<void>> RemoteSandbox::symlink(std::string target, std::string path,
                                                     std::string user) {
  CO_TRY(check_path(path));
  auto running = run_helper(core_, {"ln", "-sT", "--", target, path}, user);
  CO_TRY(co_await std::move(running));
  co_return Result<void>();
}

asio::awaitable<Result<std::unique_ptr<Watch>>> RemoteSandbox::watch(std::string path,
                                                                     std::string user) {
  CO_TRY(check_path(path));
  CO_TRY(core_->check_ready());
  auto core = core_;
  auto opening = core->remote->stream(core->place, "filesystem.Filesystem/WatchDir",
                                      json::object{{"path", path}, {"recursive", true}}, user);
  auto stream = co_await std::move(opening);
  if (stream) {
    auto reading = (*stream)->next();  // It says that it has begun, or why not.
    auto first = co_await std::move(reading);
    if (first && *first) co_return std::make_unique<RemoteWatch>(std::move(*stream));
    if (first) co_return fail(Errc::provider, "the provider ended a watch before it began");
    co_return fail(first.error());
  }
  auto looking = Core::look(core, stream.error());
  co_return fail(co_await std::move(looking));
}

}  // namespace asr::e2b
