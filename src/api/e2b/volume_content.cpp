// The files of a volume, for who has its token. They are reached through a sandbox that has nothing
// but the volume, as root of it.
#include "api/e2b/control_plane.hpp"
#include "api/e2b/fields.hpp"
#include "api/e2b/volume_token.hpp"
#include "api/file_transfer.hpp"
#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::int64_t kDeepest = 16;
constexpr std::size_t kMostEntries = 10'000;
const char* const kRoot = "root";

struct Place {
  std::shared_ptr<Sandbox> sandbox;
  std::string asked;   // as the client says it, from the volume's root
  std::string inside;  // the same in the sandbox
};

// Without "..": a client could not mean anything good by it.
Result<std::string> clean_path(std::string path) {
  std::string out;
  std::size_t at = 0;
  while (at <= path.size()) {
    std::size_t end = std::min(path.find('/', at), path.size());
    std::string part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return fail(Errc::invalid, "the path must not have .. in it");
    out += "/" + part;
  }
  return out.empty() ? "/" : out;
}

asio::awaitable<Result<Place>> open(E2bParts parts, CallPtr call) {
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view token = call->head().headers.get("authorization");
  const std::string& id = call->parts[0];
  bool known = token.size() > kScheme.size() &&
               equal_ignoring_case(token.substr(0, kScheme.size()), kScheme) &&
               constant_time_equal(token.substr(kScheme.size()), e2b_volume_token(parts, id));
  if (!known) co_return fail(Errc::denied, "the token does not open this volume");
  auto finding = parts.sessions().volumes().find_by_id(id);
  VolumeRecord record = CO_TRY(co_await std::move(finding));
  Place place;
  std::string path = CO_TRY(call->required("path"));
  place.asked = CO_TRY(clean_path(std::move(path)));
  place.inside = std::string(VolumeFiles::kPlace) + (place.asked == "/" ? "" : place.asked);
  auto opening = parts.sessions().volumes().files().open(Volumes::source_of(record.id));
  place.sandbox = CO_TRY(co_await std::move(opening));
  co_return place;
}

json::object entry_of(const FileInfo& info, const std::string& path) {
  std::string_view type = info.type == FileType::file        ? "file"
                          : info.type == FileType::directory ? "directory"
                          : info.type == FileType::symlink   ? "symlink"
                                                             : "unknown";
  auto since = info.modified.time_since_epoch();
  std::string time = iso_time(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
  std::string name = path == "/" ? "/" : path.substr(path.rfind('/') + 1);
  json::object out{{"name", repair_utf8(name)},
                   {"path", repair_utf8(path)},
                   {"type", type},
                   {"size", info.size},
                   {"mode", info.mode},
                   {"uid", info.uid},
                   {"gid", info.gid},
                   {"atime", time},
                   {"mtime", time},
                   {"ctime", time}};
  if (info.type == FileType::symlink) out["target"] = repair_utf8(info.target);
  return out;
}

asio::awaitable<Result<json::object>> look(Place place) {
  auto asking = place.sandbox->stat(place.inside, kRoot);
  auto info = co_await std::move(asking);
  if (!info && info.error().code == Errc::not_found)
    co_return fail(Errc::not_found, "path " + place.asked + " not found");
  if (!info) co_return fail(info.error());
  co_return entry_of(*info, place.asked);
}

// A number of the query, which E2B's clients send in decimal, modes included.
Result<std::optional<std::uint32_t>> number_if(const Call& call, const char* name,
                                               std::int64_t most) {
  std::int64_t value = TRY(call.number(name, -1, 0, most));
  if (value < 0) return std::optional<std::uint32_t>();
  return std::optional<std::uint32_t>(static_cast<std::uint32_t>(value));
}

struct Wish {
  std::optional<std::uint32_t> uid, gid, mode;
};
Result<Wish> wish_of(const Call& call) {
  return Wish{TRY(number_if(call, "uid", 65534)), TRY(number_if(call, "gid", 65534)),
              TRY(number_if(call, "mode", 07777))};
}

asio::awaitable<Result<void>> apply(Place place, Wish wish) {
  if (wish.mode) {
    auto changing = place.sandbox->change_mode(place.inside, *wish.mode, kRoot);
    CO_TRY(co_await std::move(changing));
  }
  if (!wish.uid && !wish.gid) co_return Result<void>();
  std::string owner = (wish.uid ? std::to_string(*wish.uid) : "") +
                      (wish.gid ? ":" + std::to_string(*wish.gid) : "");
  Command command;
  command.argv = {"/bin/chown", "-h", owner, "--", place.inside};
  command.user = kRoot;
  command.cwd = "/";
  auto running = place.sandbox->run(std::move(command));
  RunResult result = CO_TRY(co_await std::move(running));
  if (result.status.exit_code != 0) co_return fail(Errc::invalid, "the owner could not be changed");
  co_return Result<void>();
}

asio::awaitable<Result<Reply>> get_path(E2bParts parts, CallPtr call) {
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  auto looking = look(place);
  json::object entry = CO_TRY(co_await std::move(looking));
  co_return Reply{200, std::move(entry), false, {}};
}

asio::awaitable<Result<Reply>> change_path(E2bParts parts, CallPtr call) {
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  E2bFields fields(call->body);
  auto narrow = [](std::optional<std::int64_t> value) -> std::optional<std::uint32_t> {
    return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
  };
  Wish wish{narrow(CO_TRY(fields.number_if("uid", 0, 65534))),
            narrow(CO_TRY(fields.number_if("gid", 0, 65534))),
            narrow(CO_TRY(fields.number_if("mode", 0, 07777)))};
  auto seeing = look(place);  // Or what is missing would be somebody's mistake.
  CO_TRY(co_await std::move(seeing));
  auto applying = apply(place, wish);
  CO_TRY(co_await std::move(applying));
  auto looking = look(place);
  json::object entry = CO_TRY(co_await std::move(looking));
  co_return Reply{200, std::move(entry), false, {}};
}

asio::awaitable<Result<Reply>> remove_path(E2bParts parts, CallPtr call) {
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  if (place.asked == "/") co_return fail(Errc::invalid, "the root of a volume cannot be removed");
  auto looking = look(place);
  CO_TRY(co_await std::move(looking));
  auto removing = place.sandbox->remove(place.inside, kRoot);
  CO_TRY(co_await std::move(removing));
  co_return Reply::none();
}

asio::awaitable<Result<Reply>> list(E2bParts parts, CallPtr call) {
  std::int64_t depth = CO_TRY(call->number("depth", 1, 1, kDeepest));
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  auto looking = look(place);
  json::object top = CO_TRY(co_await std::move(looking));
  if (top.at("type") != "directory")
    co_return fail(Errc::invalid, "path " + place.asked + " is not a directory");
  json::array all;
  std::vector<std::pair<std::string, std::int64_t>> folders{
      {place.asked == "/" ? "" : place.asked, 1}};
  while (!folders.empty()) {
    auto [folder, level] = folders.back();
    folders.pop_back();
    std::uint64_t cursor = 0;
    do {
      auto asking =
          place.sandbox->list(std::string(VolumeFiles::kPlace) + folder, cursor, 1000, kRoot);
      DirectoryPage page = CO_TRY(co_await std::move(asking));
      cursor = page.next;
      for (const FileInfo& info : page.entries) {
        if (all.size() >= kMostEntries)
          co_return fail(Errc::exhausted, "there are too many files to list", "ask for less depth");
        std::string path = folder + "/" + info.name;
        all.push_back(entry_of(info, path));
        if (info.type == FileType::directory && level < depth)
          folders.emplace_back(std::move(path), level + 1);
      }
    } while (cursor != 0);
  }
  co_return Reply{200, std::move(all), false, {}};
}

asio::awaitable<Result<void>> make_parents(Place place, bool force) {
  std::string parent = place.inside.substr(0, place.inside.rfind('/'));
  auto asking = place.sandbox->stat(parent, kRoot);
  auto there = co_await std::move(asking);
  if (there) co_return Result<void>();
  if (!force) co_return fail(Errc::not_found, "the folder of " + place.asked + " not found");
  auto making = place.sandbox->make_directory(parent, 0755, kRoot);
  co_return co_await std::move(making);
}

asio::awaitable<Result<Reply>> make_folder(E2bParts parts, CallPtr call) {
  Wish wish = CO_TRY(wish_of(*call));
  bool force = CO_TRY(call->flag("force")).value_or(false);
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  auto preparing = make_parents(place, force);
  CO_TRY(co_await std::move(preparing));
  auto making = place.sandbox->make_directory(place.inside, 0755, kRoot);
  auto made = co_await std::move(making);
  if (!made && !(force && made.error().code == Errc::conflict)) co_return fail(made.error());
  auto applying = apply(place, wish);
  CO_TRY(co_await std::move(applying));
  auto looking = look(place);
  json::object entry = CO_TRY(co_await std::move(looking));
  co_return Reply{201, std::move(entry), false, {}};
}

asio::awaitable<Result<Reply>> get_file(E2bParts parts, CallPtr call) {
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  auto reading = place.sandbox->open_read(place.inside, kRoot);
  auto file = co_await std::move(reading);
  if (!file && file.error().code == Errc::not_found)
    co_return fail(Errc::not_found, "path " + place.asked + " not found");
  if (!file) co_return fail(file.error());
  auto sending = send_download(call, std::move(*file), place.asked);
  co_return co_await std::move(sending);
}

asio::awaitable<Result<Reply>> put_file(E2bParts parts, CallPtr call) {
  Wish wish = CO_TRY(wish_of(*call));
  bool force = CO_TRY(call->flag("force")).value_or(true);
  auto opening = open(parts, call);
  Place place = CO_TRY(co_await std::move(opening));
  auto preparing = make_parents(place, true);
  CO_TRY(co_await std::move(preparing));
  auto asking = place.sandbox->stat(place.inside, kRoot);
  if (auto there = co_await std::move(asking); there && !force)
    co_return fail(Errc::conflict, "path " + place.asked + " exists");
  auto receiving = receive_upload(call, parts.api.executor, place.sandbox, place.inside, kRoot,
                                  wish.mode.value_or(0644), nullptr);
  CO_TRY(co_await std::move(receiving));
  auto applying = apply(place, wish);
  CO_TRY(co_await std::move(applying));
  auto looking = look(place);
  json::object entry = CO_TRY(co_await std::move(looking));
  co_return Reply{201, std::move(entry), false, {}};
}

}  // namespace

std::vector<Route> e2b_volume_content_routes(const E2bParts& parts) {
  const std::string in = "/volumecontent/{volume}/";
  std::vector<Route> routes{
      e2b_route(parts, "GET", in + "path", "e2bVolumePath", get_path),
      e2b_route(parts, "PATCH", in + "path", "e2bVolumeChange", change_path, E2bBody::required),
      e2b_route(parts, "DELETE", in + "path", "e2bVolumeRemove", remove_path),
      e2b_route(parts, "GET", in + "dir", "e2bVolumeList", list),
      e2b_route(parts, "POST", in + "dir", "e2bVolumeMakeFolder", make_folder),
      e2b_route(parts, "GET", in + "file", "e2bVolumeRead", get_file),
      e2b_route(parts, "PUT", in + "file", "e2bVolumeWrite", put_file)};
  for (Route& route : routes) {  // The volume's token is the key, and the handlers look at it.
    route.needs = Needs::nothing;
    route.least = Role::viewer;
  }
  return routes;
}

}  // namespace asr
