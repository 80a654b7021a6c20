#include "session/saved_store.hpp"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>

#include "interpreter/frozen_layer.hpp"
#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kAbout = "about";
constexpr std::string_view kFiles = "files.tar";
constexpr std::uint64_t kMostAbout = 64 << 20;

std::string name_of_layer(std::uint64_t number) {
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "%s%lx", frozen::kLayerName, number);
  return name.data();
}

// A name for a file that has none, or another one.
Result<void> give_name(int file, const fs::path& path) {
  std::string from = "/proc/self/fd/" + std::to_string(file);
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
    return fail_errno("keep " + path.native());
  return {};
}

Result<void> copy_to(int from, std::uint64_t bytes, const fs::path& path) {
  fs::path beside = path.native() + ".new";
  ::unlink(beside.c_str());
  UniqueFd to(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!to) return fail_errno("make " + beside.native());
  off_t offset = 0;
  while (static_cast<std::uint64_t>(offset) < bytes) {
    ssize_t n = ::sendfile(to.get(), from, &offset, bytes - static_cast<std::uint64_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      auto failed = fail_errno("write " + path.native());
      ::unlink(beside.c_str());
      return failed;
    }
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) return fail_errno("keep " + path.native());
  return {};
}

json::value text_or_null(const json::object& from, std::string_view name) {
  const json::value* value = from.if_contains(name);
  return value ? *value : json::value(nullptr);
}

std::string text_in(const json::object& from, std::string_view name) {
  json::value value = text_or_null(from, name);
  return value.is_string() ? std::string(value.get_string()) : std::string();
}

std::uint64_t number_in(const json::object& from, std::string_view name) {
  json::value value = text_or_null(from, name);
  return value.is_number() ? value.to_number<std::uint64_t>() : 0;
}

json::object stored(const SavedContext& context) {
  json::object env;
  for (const auto& [name, value] : context.env) env[name] = value;
  json::array layers;
  if (context.program)
    for (const auto& layer : context.program->layers) layers.emplace_back(layer->number);
  json::array files;
  for (const std::string& file : context.files) files.emplace_back(file);
  return {{"id", context.id},           {"language", context.language},
          {"cwd", context.cwd},         {"env", std::move(env)},
          {"version", context.version}, {"count", context.count},
          {"had_one", context.had_one}, {"why_not", context.why_not},
          {"bytes", context.bytes},     {"threads", context.threads},
          {"files", std::move(files)},  {"event_loop", context.event_loop},
          {"layers", std::move(layers)}};
}

json::array stored(const Changes& changes) {
  json::array all;
  for (const FileChange& change : changes.entries) {
    json::array entry{base64(change.path),
                      static_cast<int>(change.kind),
                      static_cast<int>(change.type),
                      change.size,
                      change.size_before,
                      change.mode,
                      std::to_string(change.stamp),
                      base64(change.target),
                      change.modified_ns};
    all.push_back(std::move(entry));
  }
  return all;
}

Changes changes_from(const json::array& stored) {
  Changes changes;
  for (const json::value& value : stored) {
    const json::array& entry = value.as_array();
    FileChange change;
    change.path = from_base64(std::string(entry.at(0).as_string())).value_or("");
    change.kind = static_cast<FileChange::Kind>(entry.at(1).to_number<int>());
    change.type = static_cast<FileType>(entry.at(2).to_number<int>());
    change.size = entry.at(3).to_number<std::uint64_t>();
    change.size_before = entry.at(4).to_number<std::uint64_t>();
    change.mode = entry.at(5).to_number<std::uint32_t>();
    change.stamp = std::strtoull(entry.at(6).as_string().c_str(), nullptr, 10);
    change.target = from_base64(std::string(entry.at(7).as_string())).value_or("");
    change.modified_ns = entry.at(8).to_number<std::int64_t>();
    changes.entries.push_back(std::move(change));
  }
  return changes;
}

// Its program has no layers yet.
SavedContext context_from(const json::object& about) {
  SavedContext context;
  context.id = text_in(about, "id");
  context.language = text_in(about, "language");
  context.cwd = text_in(about, "cwd");
  context.version = text_in(about, "version");
  context.why_not = text_in(about, "why_not");
  context.count = number_in(about, "count");
  context.bytes = number_in(about, "bytes");
  context.threads = number_in(about, "threads");
  context.had_one = about.at("had_one").as_bool();
  context.event_loop = about.at("event_loop").as_bool();
  for (const auto& [name, value] : about.at("env").as_object())
    context.env[std::string(name)] = std::string(value.as_string());
  for (const json::value& file : about.at("files").as_array())
    context.files.emplace_back(file.as_string());
  if (!about.at("layers").as_array().empty()) context.program = std::make_shared<FrozenProgram>();
  return context;
}

}  // namespace

SavedStore::SavedStore(fs::path folder, const SecretBox& secrets)
    : layers_(std::move(folder)), secrets_(secrets) {}

asio::awaitable<Result<void>> SavedStore::write(fs::path folder,
                                                std::shared_ptr<const SavedState> state,
                                                json::object about) {
  auto work = [](SavedStore* self, fs::path into, std::shared_ptr<const SavedState> what,
                 json::object beside) -> asio::awaitable<Result<void>> {
    co_return self->write_now(into, *what, beside);
  };
  auto writing =
      asio::co_spawn(thread_, work(this, folder, state, std::move(about)), asio::use_awaitable);
  auto written = co_await std::move(writing);
  if (written || written.error().code == Errc::conflict) co_return written;
  remove(folder);
  // Somebody may have removed the folder meanwhile, and what was to be named there has no other.
  for (const SavedContext& context : state->contexts)
    if (context.program)
      for (const auto& layer : context.program->layers)
        remove_if_unused(layers_ / name_of_layer(layer->number));
  co_return written;
}

Result<void> SavedStore::write_now(const fs::path& folder, const SavedState& state,
                                   const json::object& about) {
  std::error_code ec;
  fs::create_directories(layers_, ec);
  fs::create_directories(folder.parent_path(), ec);
  bool is_new = fs::create_directory(folder, ec);
  if (ec) return fail(Errc::internal, "make " + folder.native() + ": " + ec.message());
  if (!is_new) return fail(Errc::conflict, "there is a state in " + folder.native());
  TRY(give_name(state.files->file.get(), folder / kFiles));
  json::array contexts;
  for (const SavedContext& context : state.contexts) {
    if (context.program) TRY(keep_layers(context.program->layers, folder));
    contexts.push_back(stored(context));
  }
  json::object all = about;
  all["at_ms"] = state.at_ms;
  all["programs"] = state.programs;
  all["sandbox"] = state.sandbox;
  all["contexts"] = std::move(contexts);
  all["changes_complete"] = state.changes->complete;
  all["changes"] = stored(*state.changes);
  // Variables of the environment may be secrets.
  std::string sealed = secrets_.seal(to_text(all), folder.filename().native());
  UniqueFd file = TRY(MemoryFile::make("about")).share().value();
  for (std::string_view left = sealed; !left.empty();) {
    ssize_t n = ::write(file.get(), left.data(), left.size());
    if (n <= 0) return fail_errno("write");
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  return copy_to(file.get(), sealed.size(), folder / kAbout);
}

// Each state that has the layer has a name for it of its own.
void SavedStore::remove_if_unused(const fs::path& layer) {
  std::lock_guard lock(spared_mutex_);
  // Some may have been spared before, and are of no use any more.
  std::erase_if(spared_, [](const auto& entry) {
    struct stat info {};
    bool over = entry.second.expired();
    if (over && ::lstat(entry.first.c_str(), &info) == 0 && info.st_nlink == 1)
      ::unlink(entry.first.c_str());
    return over;
  });
  struct stat info {};
  if (!spared_.contains(layer) && ::lstat(layer.c_str(), &info) == 0 && info.st_nlink == 1)
    ::unlink(layer.c_str());
}

Result<void> SavedStore::keep_layers(const std::vector<std::shared_ptr<const FrozenLayer>>& layers,
                                     const fs::path& folder) {
  if (layers.size() > 1) {  // The lowest is what others came out of as well.
    std::lock_guard lock(spared_mutex_);
    spared_[layers_ / name_of_layer(layers.back()->number)] = layers.back();
  }
  for (const auto& layer : layers) TRY(keep_layer(*layer, folder));
  return {};
}

Result<void> SavedStore::keep_layer(const FrozenLayer& layer, const fs::path& folder) {
  std::string name = name_of_layer(layer.number);
  fs::path kept = layers_ / name;
  fs::path here = folder / name;
  // The last state that had it may be removed at this very moment.
  for (int tries = 0;; ++tries) {
    if (::link(kept.c_str(), here.c_str()) == 0 || errno == EEXIST) return {};
    if (errno != ENOENT || tries > 2) return fail_errno("keep " + here.native());
    TRY(copy_to(layer.file.get(), layer.bytes, kept));
  }
}

// Back into memory, under its old name: processes are told apart from others by it.
Result<std::shared_ptr<const FrozenLayer>> SavedStore::layer_of(const fs::path& path,
                                                                std::uint64_t number) {
  std::weak_ptr<const FrozenLayer>& known = known_[number];
  if (auto layer = known.lock()) return layer;
  UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!from) return fail_errno("open " + path.native());
  struct stat info {};
  if (::fstat(from.get(), &info) != 0) return fail_errno("stat " + path.native());
  MemoryFile memory = TRY(MemoryFile::make(name_of_layer(number).c_str()));
  UniqueFd to = TRY(memory.share());
  for (off_t offset = 0; offset < info.st_size;)
    if (::sendfile(to.get(), from.get(), &offset,
                   static_cast<std::size_t>(info.st_size - offset)) <= 0)
      return fail_errno("read " + path.native());
  to.reset();
  auto layer = std::make_shared<const FrozenLayer>(
      FrozenLayer{number, static_cast<std::uint64_t>(info.st_size), TRY(memory.seal())});
  known = layer;
  return layer;
}

Result<void> SavedStore::wake(SavedContext& context, const json::object& about,
                              const fs::path& folder) {
  if (!context.program) return {};
  auto program = std::make_shared<FrozenProgram>();
  if (!thaw_) thaw_ = TRY(thaw_file());
  program->thaw = thaw_;
  for (const json::value& value : about.at("layers").as_array()) {
    auto number = value.to_number<std::uint64_t>();
    program->layers.push_back(TRY(layer_of(folder / name_of_layer(number), number)));
  }
  context.program = std::move(program);
  return {};
}

Result<SavedStore::Stored> SavedStore::wake(const fs::path& folder) {
  Stored stored = TRY(look_at(folder));
  auto state = std::make_shared<SavedState>(*stored.state);
  const json::array& contexts = stored.about.at("contexts").as_array();
  for (std::size_t i = 0; i < contexts.size(); ++i)
    TRY(wake(state->contexts[i], contexts[i].as_object(), folder));
  state->asleep = false;
  stored.state = std::move(state);
  return stored;
}

asio::awaitable<Result<SavedStore::Stored>> SavedStore::read(fs::path folder) {
  auto work = [](SavedStore* self, fs::path from) -> asio::awaitable<Result<Stored>> {
    co_return self->wake(from);
  };
  auto reading = asio::co_spawn(thread_, work(this, std::move(folder)), asio::use_awaitable);
  co_return co_await std::move(reading);
}

bool SavedStore::is_state(const fs::path& folder) {
  std::error_code ec;
  return fs::exists(folder / kAbout, ec);
}

Result<SavedStore::Stored> SavedStore::look_at(const fs::path& folder) const {
  std::string sealed = TRY(read_bytes(AT_FDCWD, (folder / kAbout).native(), kMostAbout));
  std::string text = TRY(secrets_.open(sealed, folder.filename().native()));
  Stored stored;
  auto state = std::make_shared<SavedState>();
  // It was sealed by us: what is in it is as we wrote it.
  stored.about = TRY(parse_json(text)).as_object();
  state->at_ms = stored.about.at("at_ms").to_number<std::int64_t>();
  state->programs = number_in(stored.about, "programs");
  state->sandbox = text_in(stored.about, "sandbox");
  for (const json::value& context : stored.about.at("contexts").as_array())
    state->contexts.push_back(context_from(context.as_object()));
  auto changes = std::make_shared<Changes>(changes_from(stored.about.at("changes").as_array()));
  changes->complete = stored.about.at("changes_complete").as_bool();
  state->changes = std::move(changes);
  auto files = std::make_shared<SavedFiles>();
  files->file = UniqueFd(::open((folder / kFiles).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!files->file || ::fstat(files->file.get(), &info) != 0)
    return fail_errno("open " + (folder / kFiles).native());
  files->bytes = static_cast<std::uint64_t>(info.st_size);
  state->files = std::move(files);
  state->asleep = true;
  stored.about.erase("changes");
  stored.state = std::move(state);
  return stored;
}

void SavedStore::remove(const fs::path& folder) {
  ::unlink((folder / kAbout).c_str());
  std::vector<fs::path> layers;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ec))
    if (entry.path().filename().native().starts_with(frozen::kLayerName))
      layers.push_back(layers_ / entry.path().filename());
  (void)remove_tree(AT_FDCWD, folder.native());
  for (const fs::path& layer : layers) remove_if_unused(layer);
}

void SavedStore::remove_all(const fs::path& folder) {
  std::vector<fs::path> states;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ec))
    states.push_back(entry.path());
  for (const fs::path& state : states) remove(state);
}

void SavedStore::sweep() {
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(layers_, ec))
    remove_if_unused(entry.path());
}

}  // namespace asr
