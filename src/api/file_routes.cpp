// Files: raw bytes in and out, listing, moving, archives, watching. Nothing is held in memory: what
// is read leaves as it comes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <deque>

#include "api/api.hpp"
#include "api/errors.hpp"
#include "api/file_transfer.hpp"
#include "api/sse.hpp"
#include "base/clock.hpp"
#include "session/history_steps.hpp"

namespace asr {

namespace {

struct Place {
  std::shared_ptr<Session> session;
  std::shared_ptr<Sandbox> sandbox;
  std::string path;
  std::string user = "user";
};

asio::awaitable<Result<Place>> place_of(ApiParts parts, CallPtr call, Access access) {
  auto finding = parts.sessions.find(call->caller, call->parts[0], access);
  Place place;
  place.session = CO_TRY(co_await std::move(finding));
  place.sandbox = CO_TRY(place.session->sandbox());
  if (auto path = call->head().parameter("path")) place.path = std::move(*path);
  if (auto user = call->head().parameter("user")) place.user = std::move(*user);
  co_return place;
}

Result<void> need_path(const Place& place) {
  if (place.path.empty()) return fail(Errc::invalid, "the parameter path is missing");
  return {};
}

json::object json_of(const FileInfo& info, const std::string& folder) {
  constexpr std::string_view kTypes[] = {"file", "directory", "symlink", "other"};
  auto modified =
      std::chrono::duration_cast<std::chrono::milliseconds>(info.modified.time_since_epoch())
          .count();
  json::object out;
  put_bytes(out, "name", info.name);
  std::string path = folder;
  if (!path.empty() && path.back() != '/') path += '/';
  put_bytes(out, "path", folder.empty() ? info.name : path + info.name);
  out["type"] = kTypes[static_cast<std::size_t>(info.type)];
  out["size"] = info.size;
  out["mode"] = info.mode;
  out["uid"] = info.uid;
  out["gid"] = info.gid;
  out["modified_at"] = iso_time(modified);
  if (info.type == FileType::symlink) put_bytes(out, "target", info.target);
  return out;
}

std::string parent_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash == 0 ? 1 : slash);
}

// What the history tells of a change; none is told where there is no history.
void note(const Place& place, std::string_view operation, const std::string& path,
          json::object more = {}) {
  if (!place.session->history()) return;
  json::object step = small_step("file", operation);
  put_bytes(step, "path", path);
  if (place.user != "user") step["user"] = repair_utf8(place.user);
  for (auto& [name, value] : more) step[name] = std::move(value);
  place.session->note(std::move(step));
}

std::shared_ptr<ContentHash> hash_for(const Place& place) {
  return place.session->history() ? std::make_shared<ContentHash>() : nullptr;
}

void note_content(const Place& place, std::string_view operation,
                  const std::shared_ptr<ContentHash>& hash, json::object more = {}) {
  if (!hash) return;
  hash->describe(more);
  note(place, operation, place.path, std::move(more));
}

asio::awaitable<Result<Reply>> read(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::look);
  Place place = CO_TRY(co_await std::move(placing));
  CO_TRY(need_path(place));
  auto opening = place.sandbox->open_read(place.path, place.user);
  UniqueFd file = CO_TRY(co_await std::move(opening));
  auto sending = send_download(call, std::move(file), place.path);
  co_return co_await std::move(sending);
}

asio::awaitable<Result<Reply>> write(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  CO_TRY(need_path(place));
  std::int64_t mode = CO_TRY(call->number("mode", 0644, 0, 0777));
  if (call->head().headers.has("if-match") || call->head().headers.has("if-none-match")) {
    auto opening = place.sandbox->open_read(place.path, place.user);
    auto found = co_await std::move(opening);
    if (!found && found.error().code != Errc::not_found) co_return fail(found.error());
    UniqueFd present = found ? std::move(*found) : UniqueFd();
    bool wanted = CO_TRY(write_is_wanted(call->head(), present));
    if (!wanted) {
      Error changed(Errc::conflict, "the file is not what you think it is", "read it again");
      co_return Reply{412, json_of(changed, call->caller.trace_id), false, {}};
    }
  }
  auto hash = hash_for(place);
  auto receiving = receive_upload(call, parts.executor, place.sandbox, place.path, place.user,
                                  static_cast<std::uint32_t>(mode), hash);
  if (auto received = co_await std::move(receiving); !received) {
    if (received.error().code != Errc::exhausted) co_return fail(received.error());
    co_return Reply{507, json_of(received.error(), call->caller.trace_id), false, {}};
  }
  place.session->touch();
  note_content(place, "write", hash, {{"mode", mode}});
  auto asking = place.sandbox->stat(place.path, place.user);
  FileInfo info = CO_TRY(co_await std::move(asking));
  co_return Reply{200, json_of(info, parent_of(place.path)), false, {}};
}

asio::awaitable<Result<Reply>> remove(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  CO_TRY(need_path(place));
  auto removing = place.sandbox->remove(place.path, place.user);
  CO_TRY(co_await std::move(removing));
  note(place, "remove", place.path);
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> list(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::look);
  Place place = CO_TRY(co_await std::move(placing));
  if (place.path.empty()) place.path = "/workspace";
  std::int64_t cursor = CO_TRY(call->number("cursor", 0, 0, INT64_MAX));
  std::int64_t limit = CO_TRY(call->number("limit", 1000, 1, 1000));
  auto listing = place.sandbox->list(place.path, static_cast<std::uint64_t>(cursor),
                                     static_cast<std::uint32_t>(limit), place.user);
  DirectoryPage page = CO_TRY(co_await std::move(listing));
  json::array entries;
  for (const FileInfo& info : page.entries) entries.push_back(json_of(info, place.path));
  json::object body{{"path", repair_utf8(place.path)}, {"entries", std::move(entries)}};
  body["next_cursor"] =
      page.next == 0 ? json::value(nullptr) : json::value(std::to_string(page.next));
  co_return Reply{200, std::move(body), false, {}};
}

asio::awaitable<Result<Reply>> stat(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::look);
  Place place = CO_TRY(co_await std::move(placing));
  CO_TRY(need_path(place));
  auto asking = place.sandbox->stat(place.path, place.user);
  FileInfo info = CO_TRY(co_await std::move(asking));
  co_return Reply{200, json_of(info, parent_of(place.path)), false, {}};
}

std::string text_in(const Call& call, const char* name) {
  return std::string(call.body.at(name).get_string());
}

asio::awaitable<Result<Reply>> make_directory(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  auto making = place.sandbox->make_directory(text_in(*call, "path"), 0755, place.user);
  CO_TRY(co_await std::move(making));
  note(place, "make_directory", text_in(*call, "path"));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> move(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  auto moving = place.sandbox->move(text_in(*call, "from"), text_in(*call, "to"), place.user);
  CO_TRY(co_await std::move(moving));
  note(place, "move", text_in(*call, "from"), {{"to", text_in(*call, "to")}});
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> copy(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  auto copying = place.sandbox->copy(text_in(*call, "from"), text_in(*call, "to"), place.user);
  CO_TRY(co_await std::move(copying));
  note(place, "copy", text_in(*call, "from"), {{"to", text_in(*call, "to")}});
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> archive_out(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::look);
  Place place = CO_TRY(co_await std::move(placing));
  if (place.path.empty()) place.path = "/workspace";
  auto opening = place.sandbox->archive_out(place.path, place.user);
  UniqueFd pipe = CO_TRY(co_await std::move(opening));
  auto sending = send_pipe(call, parts.executor, std::move(pipe), "application/x-tar");
  co_return co_await std::move(sending);
}

asio::awaitable<Result<Reply>> archive_in(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::use);
  Place place = CO_TRY(co_await std::move(placing));
  if (place.path.empty()) place.path = "/workspace";
  auto hash = hash_for(place);
  auto unpacking =
      receive_archive(call, parts.executor, place.sandbox, place.path, place.user, hash);
  auto unpacked = co_await std::move(unpacking);
  if (!unpacked && unpacked.error().code == Errc::exhausted)
    co_return Reply{507, json_of(unpacked.error(), call->caller.trace_id), false, {}};
  Sandbox::ArchiveReport report = CO_TRY(std::move(unpacked));
  note_content(place, "unpack", hash);
  json::array reasons;
  for (const std::string& reason : report.reasons) reasons.emplace_back(repair_utf8(reason));
  json::object body{
      {"entries", report.entries}, {"skipped", report.skipped}, {"reasons", std::move(reasons)}};
  co_return Reply{200, std::move(body), false, {}};
}

std::string_view word_of(WatchEvent::Kind kind) {
  constexpr std::string_view kWords[] = {"created",  "modified",   "removed", "moved_from",
                                         "moved_to", "attributes", "overflow"};
  return kWords[static_cast<std::size_t>(kind)];
}

// What a watch has seen and nobody was told yet.
struct Changes {
  explicit Changes(asio::any_io_executor executor) : bell(std::move(executor)) {}
  std::unique_ptr<Watch> source;
  std::deque<WatchEvent> seen;
  bool over = false;
  Bell bell;
};

asio::awaitable<void> gather(std::shared_ptr<Changes> changes) {
  while (!changes->over) {
    auto waiting = changes->source->next();
    auto events = co_await std::move(waiting);
    if (!events) break;
    for (WatchEvent& event : *events) changes->seen.push_back(std::move(event));
    changes->bell.ring();
    while (changes->seen.size() > 1000 && !changes->over) co_await changes->bell.wait();
  }
  changes->over = true;
  changes->bell.ring();
}

asio::awaitable<Result<void>> tell_changes(ApiParts parts, CallPtr call, Place place,
                                           std::shared_ptr<Changes> changes) {
  auto opening = EventStream::open(call);
  EventStream out = CO_TRY(co_await std::move(opening));
  auto greeting = out.send("watching", "", to_text(json::object{{"path", place.path}}));
  CO_TRY(co_await std::move(greeting));
  while (!changes->over || !changes->seen.empty()) {
    while (!changes->seen.empty()) {
      WatchEvent event = std::move(changes->seen.front());
      changes->seen.pop_front();
      json::object body{{"kind", word_of(event.kind)}, {"directory", event.directory}};
      put_bytes(body, "path", event.path);
      auto sending = out.send("change", "", to_text(body));
      CO_TRY(co_await std::move(sending));
      place.session->touch();
    }
    changes->bell.ring();
    co_await changes->bell.wait(Bell::Clock::now() + kLookAgain);
    if (!co_await may_go_on(parts, call->caller, place.session)) break;
    auto beating = out.beat();
    CO_TRY(co_await std::move(beating));
  }
  auto ending = out.end();
  co_return co_await std::move(ending);
}

asio::awaitable<Result<Reply>> watch(ApiParts parts, CallPtr call) {
  auto placing = place_of(parts, call, Access::look);
  Place place = CO_TRY(co_await std::move(placing));
  if (place.path.empty()) place.path = "/workspace";
  auto changes = std::make_shared<Changes>(parts.executor);
  auto starting = place.sandbox->watch(place.path, place.user);
  changes->source = CO_TRY(co_await std::move(starting));
  asio::co_spawn(parts.executor, gather(changes), asio::detached);
  auto telling = tell_changes(parts, call, std::move(place), changes);
  auto told = co_await std::move(telling);
  changes->over = true;
  changes->bell.ring();
  changes->source->close();
  CO_TRY(std::move(told));
  co_return Reply::done();
}

}  // namespace

std::vector<Route> file_routes(const ApiParts& parts) {
  auto with = [parts](auto function) -> Handle {
    return [parts, function](CallPtr call) { return function(parts, std::move(call)); };
  };
  const std::string tag = "files";
  const std::string base = "/api/sessions/{id}/files";
  const Parameter path{"path", "Inside the session", "string", true};
  const Parameter folder{"path", "A directory inside; /workspace where it is missing"};
  const Parameter user{"user", "With whose rights: user, root, or a number"};
  std::vector<Route> routes;
  Route reading{"GET",
                base,
                "readFile",
                tag,
                "A file's bytes; ranges and conditions are honoured",
                with(read),
                {{200, "The bytes", "", "application/octet-stream"},
                 {206, "Some of them", "", "application/octet-stream"},
                 {304, "It has not changed"},
                 {416, "It has no such range", "Error"}}};
  reading.parameters = {path, user};
  routes.push_back(std::move(reading));
  Route writing{"PUT",
                base,
                "writeFile",
                tag,
                "Write a file; all of it or nothing",
                with(write),
                {{200, "The file", "FileInfo"}}};
  writing.media = "application/octet-stream";
  writing.parameters = {path, user, {"mode", "Permissions, as a decimal number", "integer"}};
  routes.push_back(std::move(writing));
  Route removing{"DELETE",
                 base,
                 "removeFile",
                 tag,
                 "Remove a file, or a directory with all in it",
                 with(remove),
                 {{204, "It is gone"}}};
  removing.parameters = {path, user};
  routes.push_back(std::move(removing));
  Route listing{"GET",
                base + "/list",
                "listFiles",
                tag,
                "What a directory holds, in pages",
                with(list),
                {{200, "A page", "FileList"}}};
  listing.parameters = {folder,
                        user,
                        {"cursor", "next_cursor of the page before"},
                        {"limit", "At most so many", "integer"}};
  routes.push_back(std::move(listing));
  Route asking{"GET",
               base + "/stat",
               "statFile",
               tag,
               "What is there",
               with(stat),
               {{200, "The file", "FileInfo"}}};
  asking.parameters = {path, user};
  routes.push_back(std::move(asking));
  Route making{"POST",
               base + "/mkdir",
               "makeDirectory",
               tag,
               "Make a directory, with parents",
               with(make_directory),
               {{204, "It is there"}},
               "PathBody"};
  making.parameters = {user};
  routes.push_back(std::move(making));
  Route moving{"POST",           base + "/move", "moveFile",       tag,
               "Move or rename", with(move),     {{204, "Moved"}}, "FromTo"};
  moving.parameters = {user};
  routes.push_back(std::move(moving));
  Route copying{
      "POST",     base + "/copy",    "copyFile", tag, "Copy, directories with all in them",
      with(copy), {{204, "Copied"}}, "FromTo"};
  copying.parameters = {user};
  routes.push_back(std::move(copying));
  Route packing{"GET",
                base + "/archive",
                "downloadArchive",
                tag,
                "A directory as a tar archive",
                with(archive_out),
                {{200, "The archive", "", "application/x-tar"}}};
  packing.parameters = {folder, user};
  routes.push_back(std::move(packing));
  Route unpacking{"PUT",
                  base + "/archive",
                  "uploadArchive",
                  tag,
                  "Unpack a tar archive, plain or compressed",
                  with(archive_in),
                  {{200, "What was unpacked", "ArchiveReport"}}};
  unpacking.media = "application/x-tar";
  unpacking.parameters = {folder, user};
  routes.push_back(std::move(unpacking));
  Route watching{"GET",
                 base + "/watch",
                 "watchFiles",
                 tag,
                 "Changes below a directory, as events, until the connection is closed",
                 with(watch),
                 {{200, "Events", "", "text/event-stream"}}};
  watching.parameters = {folder, user};
  routes.push_back(std::move(watching));
  return routes;
}

}  // namespace asr
