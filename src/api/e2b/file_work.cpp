#include "api/e2b/file_work.hpp"

namespace asr {

namespace {

constexpr int kMostLinks = 16;

std::string parent_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

}  // namespace

asio::awaitable<std::vector<std::string>> missing_above(EnvdCallPtr call, std::string path) {
  std::vector<std::string> missing;
  for (; path != "/"; path = parent_of(path)) {
    auto asking = call->sandbox->stat(path, "root");
    auto there = co_await std::move(asking);
    if (there || there.error().code != Errc::not_found) break;
    missing.insert(missing.begin(), path);
  }
  co_return missing;
}

asio::awaitable<Result<void>> give_to_user(EnvdCallPtr call, std::vector<std::string> paths) {
  for (const std::string& path : paths) {
    auto giving = call->sandbox->change_owner(path, call->user, "root");
    CO_TRY(co_await std::move(giving));
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> make_with_rights(
    EnvdCallPtr call, std::string path,
    std::function<asio::awaitable<Result<void>>(std::string user)> work) {
  auto trying = work(call->user);
  auto done = co_await std::move(trying);
  if (done || done.error().code != Errc::denied || call->user == "root") co_return done;
  auto looking = missing_above(call, path);
  std::vector<std::string> made = co_await std::move(looking);
  auto as_root = work("root");
  auto forced = co_await std::move(as_root);
  if (!forced && forced.error().code == Errc::unsupported) co_return done;
  if (!forced) co_return forced;
  if (made.empty()) made.push_back(path);  // It was there; now it is the user's.
  auto giving = give_to_user(call, std::move(made));
  co_return co_await std::move(giving);
}

asio::awaitable<Result<FileInfo>> stat_file(EnvdCallPtr call, std::string path) {
  auto work = [call, path](std::string user) { return call->sandbox->stat(path, std::move(user)); };
  return with_rights<FileInfo>(call, std::move(work));
}

asio::awaitable<Result<json::object>> describe_file(EnvdCallPtr call, std::string path) {
  auto asking = stat_file(call, path);
  FileInfo info = CO_TRY(co_await std::move(asking));
  auto describing = describe_file(call, std::move(path), std::move(info));
  co_return co_await std::move(describing);
}

asio::awaitable<Result<json::object>> describe_file(EnvdCallPtr call, std::string path,
                                                    FileInfo info) {
  auto naming = names_in(call);
  AccountNames names = co_await std::move(naming);
  if (info.type != FileType::symlink) co_return entry_info(info, path, names, nullptr);
  LinkTarget target{path, info};
  for (int i = 0; i < kMostLinks && target.info.type == FileType::symlink; ++i) {
    target.path = resolve_path(target.info.target, parent_of(target.path));
    auto asking = stat_file(call, target.path);
    auto there = co_await std::move(asking);
    if (!there) co_return entry_info(info, path, names, nullptr);
    target.info = *std::move(there);
  }
  bool leads_nowhere = target.info.type == FileType::symlink;
  co_return entry_info(info, path, names, leads_nowhere ? nullptr : &target);
}

}  // namespace asr
