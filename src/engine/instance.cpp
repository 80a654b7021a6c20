#include "engine/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/scope_exit.hpp"
#include "engine/cgroups.hpp"
#include "engine/environment.hpp"
#include "engine/full_network.hpp"
#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "i-";
constexpr int kTries = 100;
constexpr int kConflictTries = 25;
constexpr std::chrono::milliseconds kTryAgain{20};

Result<void> make_private_dir(const fs::path& path) {
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno("mkdir " + path.native());
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return fail_errno("stat " + path.native());
  // Somebody else's folder, or a link, would let them take over what we put there.
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0022) != 0)
    return fail(Errc::denied, path.native() + " is not a folder of ours alone",
                "remove it, or choose another runtime folder");
  return {};
}

bool is_old(const fs::directory_entry& entry) {
  std::error_code ec;
  auto changed = fs::last_write_time(entry.path(), ec);
  return !ec && fs::file_time_type::clock::now() - changed > std::chrono::minutes(1);
}

}  // namespace

fs::path default_runtime_dir() {
  if (::geteuid() == 0) return "/run/agent-sandbox";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/')
    return fs::path(runtime) / "agent-sandbox";
  return default_cache_dir() / "run";
}

fs::path default_cache_dir() {
  if (::geteuid() == 0) return "/var/cache/agent-sandbox";
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fs::path(cache) / "agent-sandbox";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache" / "agent-sandbox";
}

namespace {

// An open file of this name that is locked by us, and still the one with that name.
Result<UniqueFd> lock_file(const fs::path& path, int flags) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (!fd) return fail_errno("open " + path.native());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Errc::conflict, path.native() + " is locked");
  struct stat mine {};
  struct stat named {};
  if (::fstat(fd.get(), &mine) != 0 || ::stat(path.c_str(), &named) != 0 ||
      mine.st_ino != named.st_ino)
    return fail(Errc::gone, path.native() + " was removed meanwhile");
  return fd;
}

}  // namespace

Result<Instance> Instance::make(const fs::path& runtime_dir, InstanceId id, Name name) {
  Instance instance;
  instance.id_ = std::move(id);
  instance.dir_ = runtime_dir / instance.id_.text;
  // Made under another name and renamed when locked: no recovery ever sees an instance without a
  // lock.
  fs::path making = runtime_dir / ("new-" + instance.id_.text + "-" + random_name(6));
  if (::mkdir(making.c_str(), 0700) != 0) return fail_errno("mkdir " + making.native());
  ScopeExit discard([&] { (void)remove_tree(AT_FDCWD, making.native()); });
  UniqueFd lock = TRY(lock_file(making / "lock", O_CREAT | O_EXCL));
  UniqueFd daemon;
  if (name == Name::fixed) daemon = TRY(lock_file(making / "daemon", O_CREAT | O_EXCL));
  if (::rename(making.c_str(), instance.dir_.c_str()) != 0)
    return fail_errno("rename " + making.native());
  discard.dismiss();
  instance.lock_ = std::move(lock);
  instance.daemon_ = std::move(daemon);
  return instance;
}

Result<Instance> Instance::open(const fs::path& runtime_dir) {
  TRY(make_private_dir(runtime_dir));
  return make(runtime_dir, InstanceId(std::string(kPrefix) + random_name(12)), Name::random);
}

Result<void> check_instance_name(const std::string& name) {
  auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  if (!name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), fits)) return {};
  return fail(Errc::invalid, "the instance name " + name + " cannot be used",
              "use lowercase letters, digits and _, at most 32");
}

namespace {

// Control groups know no folders: the same name below two runtime folders is two instances.
std::string place_of(const fs::path& runtime_dir) {
  std::error_code ec;
  fs::path path = fs::canonical(runtime_dir, ec);
  std::uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (char c : (ec ? runtime_dir : path).native())
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", hash);
  return text.data();
}

}  // namespace

Result<void> Instance::take_over() {
  UniqueFd daemon = TRY(lock_file(dir_ / "daemon", 0));
  auto lock = lock_file(dir_ / "lock", 0);
  if (lock) {
    // Nobody is left of it. Under another name first: who comes next sees all of it or nothing.
    fs::path dead = dir_.parent_path() / ("new-" + id_.text + "-" + random_name(6));
    (void)sweep_cgroups(id_);
    (void)sweep_network(dir_, id_);
    if (::rename(dir_.c_str(), dead.c_str()) != 0) return fail_errno("rename " + dir_.native());
    (void)remove_tree(AT_FDCWD, dead.native());
    return fail(Errc::gone, "it was dead");
  }
  if (lock.error().code != Errc::conflict) return fail(std::move(lock).error());
  daemon_ = std::move(daemon);
  return {};
}

Result<Instance> Instance::become(const fs::path& runtime_dir, const std::string& name) {
  TRY(check_instance_name(name));
  TRY(make_private_dir(runtime_dir));
  InstanceId id(std::string(kPrefix) + name + "_" + place_of(runtime_dir));
  // Others may be removing what is left of it at this very moment.
  for (int tries = 0; tries < kTries; ++tries) {
    auto made = make(runtime_dir, id, Name::fixed);
    if (made || made.error().code != Errc::conflict) return made;
    Instance instance;
    instance.id_ = id;
    instance.dir_ = runtime_dir / id.text;
    auto taken = instance.take_over();
    if (taken) return instance;
    // Not at once: a process that the dead daemon was just starting has its locks until it runs.
    if (taken.error().code == Errc::conflict && tries >= kConflictTries)
      return fail(Errc::conflict, "another engine runs as " + name,
                  "end it first, or use another instance name");
    bool passing = taken.error().code == Errc::not_found || taken.error().code == Errc::gone ||
                   taken.error().code == Errc::conflict;
    if (!passing) return fail(std::move(taken).error());
    std::this_thread::sleep_for(kTryAgain);
  }
  return fail(Errc::conflict, "the folder of instance " + name + " comes and goes");
}

UniqueFd Instance::copy_lock() const { return UniqueFd(::fcntl(lock_.get(), F_DUPFD_CLOEXEC, 3)); }

void Instance::leave() noexcept {
  lock_.reset();
  daemon_.reset();
}

Instance::~Instance() {
  if (!lock_) return;  // Moved from, or left, or never ours.
  (void)remove_tree(AT_FDCWD, dir_.native());
}

namespace {

// What it was unpacking when it ended.
void discard_half_made(const fs::path& cache_dir, const InstanceId& dead, RecoveryReport& report) {
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache_dir, ec)) {
    if (!is_half_made_by(entry.path().filename().native(), dead)) continue;
    if (auto removed = remove_tree(AT_FDCWD, entry.path().native()); !removed)
      report.problems.push_back(removed.error().what);
  }
}

}  // namespace

RecoveryReport recover(const fs::path& runtime_dir, const fs::path& cache_dir) {
  RecoveryReport report;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(runtime_dir, ec)) {
    std::string name = entry.path().filename().native();
    bool half_made = name.starts_with("new-" + std::string(kPrefix));
    if (!half_made && !name.starts_with(kPrefix)) continue;
    auto lock = lock_file(entry.path() / "lock", 0);
    if (!lock && (lock.error().code == Errc::conflict || lock.error().code == Errc::gone))
      continue;  // It lives, or a new one of that name does.
    if (!lock && !is_old(entry))
      continue;  // Perhaps in the middle of being made, or of being removed.
    CgroupSweep sweep = sweep_cgroups(InstanceId(name));
    for (std::string& problem : sweep_network(entry.path(), InstanceId(name)))
      sweep.problems.push_back(std::move(problem));
    ++report.instances;
    report.sandboxes += sweep.sandboxes;
    report.processes += sweep.processes;
    for (std::string& problem : sweep.problems) report.problems.push_back(std::move(problem));
    discard_half_made(cache_dir, InstanceId(name), report);
    if (!sweep.problems.empty()) continue;  // Its folder stays, so that the next start tries again.
    if (auto removed = remove_tree(AT_FDCWD, entry.path().native()); !removed)
      report.problems.push_back(removed.error().what);
  }
  return report;
}

}  // namespace asr
