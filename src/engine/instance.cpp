#include "engine/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/scope_exit.hpp"
#include "engine/cgroups.hpp"
#include "engine/environment.hpp"
#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "i-";

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

Result<Instance> Instance::open(const fs::path& runtime_dir) {
  TRY(make_private_dir(runtime_dir));
  Instance instance;
  instance.id_ = InstanceId(std::string(kPrefix) + random_name(12));
  instance.dir_ = runtime_dir / instance.id_.text;
  // Made under another name and renamed when locked: no recovery ever sees an instance without a
  // lock.
  fs::path making = runtime_dir / ("new-" + instance.id_.text);
  if (::mkdir(making.c_str(), 0700) != 0) return fail_errno("mkdir " + making.native());
  ScopeExit discard([&] { (void)remove_tree(AT_FDCWD, making.native()); });
  instance.lock_ =
      UniqueFd(::open((making / "lock").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!instance.lock_) return fail_errno("create lock");
  if (::flock(instance.lock_.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno("lock");
  if (::rename(making.c_str(), instance.dir_.c_str()) != 0)
    return fail_errno("rename " + making.native());
  discard.dismiss();
  return instance;
}

Instance::~Instance() {
  if (!lock_) return;  // Moved from.
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
    UniqueFd lock(::open((entry.path() / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock && !is_old(entry))
      continue;  // Perhaps in the middle of being made, or of being removed.
    if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;  // It lives.
    CgroupSweep sweep = sweep_cgroups(InstanceId(name));
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
