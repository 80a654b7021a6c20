// filesystem.Filesystem: what is there, made, moved, removed and watched.
#include <algorithm>

#include "api/e2b/envd.hpp"
#include "api/e2b/file_work.hpp"
#include "api/e2b/watch_calls.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostEntries = 100'000;  // of one listing
constexpr std::int64_t kDeepest = 1000;

void note(const EnvdCall& call, std::string_view operation, const std::string& path,
          json::object more = {}) {
  if (!call.session->history()) return;
  json::object step = small_step("file", operation);
  put_bytes(step, "path", path);
  if (call.user != "user") step["user"] = repair_utf8(call.user);
  for (auto& [name, value] : more) step[name] = std::move(value);
  call.session->note(std::move(step));
}

Result<std::string> path_in(const EnvdCall& call, const json::object& message, const char* name) {
  return call.resolve(TRY(text_field(message, name)));
}

asio::awaitable<Result<Unary>> entry_at(EnvdCallPtr call, std::string path) {
  auto describing = describe_file(call, std::move(path));
  json::object entry = CO_TRY(co_await std::move(describing));
  co_return Unary{{{"entry", std::move(entry)}}, {}};
}

asio::awaitable<Result<Unary>> stat(EnvdCallPtr call, json::object message) {
  std::string path = CO_TRY(path_in(*call, message, "path"));
  auto answering = entry_at(call, std::move(path));
  co_return co_await std::move(answering);
}

asio::awaitable<Result<Unary>> make_dir(EnvdCallPtr call, json::object message) {
  std::string path = CO_TRY(path_in(*call, message, "path"));
  auto looking = stat_file(call, path);
  auto there = co_await std::move(looking);
  if (there && there->type == FileType::directory)
    co_return Unary::failed(ConnectCode::already_exists, "directory already exists: " + path);
  if (there)
    co_return Unary::failed(ConnectCode::invalid_argument,
                            "path already exists but it is not a directory: " + path);
  auto work = [call, path](std::string user) {
    return call->sandbox->make_directory(path, 0755, std::move(user));
  };
  auto making = make_with_rights(call, path, std::move(work));
  auto made = co_await std::move(making);
  if (!made && made.error().code == Errc::conflict)
    co_return Unary::failed(ConnectCode::invalid_argument, made.error().what);
  CO_TRY(std::move(made));
  note(*call, "make_directory", path);
  auto answering = entry_at(call, std::move(path));
  co_return co_await std::move(answering);
}

asio::awaitable<Result<Unary>> move(EnvdCallPtr call, json::object message) {
  std::string from = CO_TRY(path_in(*call, message, "source"));
  std::string to = CO_TRY(path_in(*call, message, "destination"));
  auto looking = stat_file(call, from);
  CO_TRY(co_await std::move(looking));
  auto work = [call, from, to](std::string user) {
    return call->sandbox->move(from, to, std::move(user));
  };
  auto moving = make_with_rights(call, to, std::move(work));
  CO_TRY(co_await std::move(moving));
  note(*call, "move", from, {{"to", repair_utf8(to)}});
  auto answering = entry_at(call, std::move(to));
  co_return co_await std::move(answering);
}

asio::awaitable<Result<Unary>> remove(EnvdCallPtr call, json::object message) {
  std::string path = CO_TRY(path_in(*call, message, "path"));
  auto work = [call, path](std::string user) {
    return call->sandbox->remove(path, std::move(user));
  };
  auto removing = with_rights<void>(call, std::move(work));
  auto removed = co_await std::move(removing);
  if (!removed && removed.error().code != Errc::not_found) co_return fail(removed.error());
  if (removed) note(*call, "remove", path);
  co_return Unary{};
}

// What is directly in a folder, by name.
asio::awaitable<Result<std::vector<FileInfo>>> entries_of(EnvdCallPtr call, std::string path) {
  std::vector<FileInfo> all;
  std::uint64_t cursor = 0;
  do {
    auto work = [call, path, cursor](std::string user) {
      return call->sandbox->list(path, cursor, 1000, std::move(user));
    };
    auto listing = with_rights<DirectoryPage>(call, std::move(work));
    DirectoryPage page = CO_TRY(co_await std::move(listing));
    for (FileInfo& info : page.entries) all.push_back(std::move(info));
    cursor = page.next;
    if (all.size() > kMostEntries)
      co_return fail(Errc::exhausted, "there are too many files in " + path);
  } while (cursor != 0);
  std::sort(all.begin(), all.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  co_return all;
}

// A folder, then what is in it, then the next: as one walks.
asio::awaitable<Result<void>> walk(EnvdCallPtr call, std::string path, std::int64_t depth,
                                   json::array* found) {
  auto listing = entries_of(call, path);
  auto entries = CO_TRY(co_await std::move(listing));
  for (FileInfo& info : entries) {
    if (found->size() >= kMostEntries)
      co_return fail(Errc::exhausted, "there are too many files below " + path,
                     "list fewer levels at once");
    std::string below = (path == "/" ? "" : path) + "/" + info.name;
    bool is_folder = info.type == FileType::directory;
    auto describing = describe_file(call, below, std::move(info));
    auto entry = co_await std::move(describing);
    if (!entry) continue;  // It is gone again.
    found->push_back(*std::move(entry));
    if (!is_folder || depth <= 1) continue;
    auto walking = walk(call, std::move(below), depth - 1, found);
    auto walked = co_await std::move(walking);
    if (!walked && walked.error().code != Errc::not_found && walked.error().code != Errc::denied)
      co_return walked;
  }
  co_return Result<void>();
}

asio::awaitable<Result<Unary>> list_dir(EnvdCallPtr call, json::object message) {
  std::string path = CO_TRY(path_in(*call, message, "path"));
  std::int64_t depth = CO_TRY(int_field(message, "depth", 1));
  if (depth < 0 || depth > kDeepest) co_return fail(Errc::invalid, "depth must be 0 to 1000");
  auto looking = describe_file(call, path);
  json::object folder = CO_TRY(co_await std::move(looking));
  if (folder["type"] != "FILE_TYPE_DIRECTORY")
    co_return Unary::failed(ConnectCode::invalid_argument, "path is not a directory: " + path);
  auto found = std::make_shared<json::array>();
  auto walking = walk(call, std::move(path), std::max<std::int64_t>(depth, 1), found.get());
  CO_TRY(co_await std::move(walking));
  co_return Unary{{{"entries", std::move(*found)}}, {}};
}

}  // namespace

Answering serve_filesystem(EnvdCallPtr call, std::string method) {
  static const StreamCalls kStreams{{"WatchDir", watch_dir}};
  static const UnaryCalls kCalls{{"Stat", stat},
                                 {"MakeDir", make_dir},
                                 {"Move", move},
                                 {"ListDir", list_dir},
                                 {"Remove", remove},
                                 {"CreateWatcher", create_watcher},
                                 {"GetWatcherEvents", watcher_events},
                                 {"RemoveWatcher", remove_watcher}};
  return serve_method(std::move(call), method, kStreams, kCalls);
}

}  // namespace asr
