#include "store/state_folder.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstring>
#include <span>

#include "base/scope_exit.hpp"
#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr char kKeyFile[] = "secret.key";
constexpr char kNewKeyFile[] = "secret.key.new";

Result<void> make_folder(const fs::path& path) {
  std::error_code ec;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ec);
  if (ec) return fail(errno_error(ec.value(), "make " + path.parent_path().native()));
  if (::mkdir(path.c_str(), 0700) != 0) {
    if (errno == EEXIST) return {};
    return fail_errno("make " + path.native());
  }
  // The umask may have taken some of our own rights.
  if (::chmod(path.c_str(), 0700) != 0) return fail_errno("chmod " + path.native());
  return {};
}

// That only the user we run as can get at what `fd` is.
Result<void> check_private(int fd, const fs::path& path, const char* mode) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("stat " + path.native());
  if (info.st_uid != ::geteuid())
    return fail(Errc::denied, path.native() + " belongs to another user",
                "run the server as its owner, or chown it to the user who runs the server");
  if ((info.st_mode & 077U) != 0)
    return fail(Errc::denied, "other users may get at " + path.native(),
                std::string("chmod ") + mode + " " + path.native());
  return {};
}

Result<UniqueFd> take_lock(int dir, const fs::path& path) {
  UniqueFd fd(::openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail_errno("open " + (path / "lock").native());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return fail_errno("lock " + (path / "lock").native());
  return fail(Errc::conflict, "another server uses the storage in " + path.native(),
              "stop it, or give this one a folder of its own");
}

Result<void> write_all(int fd, std::span<const unsigned char> bytes, const std::string& name) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write " + name);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

Result<StateFolder> StateFolder::open(const fs::path& path) {
  TRY(make_folder(path));
  // SQLite is told to follow no links at all, so those on the way to the folder are resolved here.
  std::error_code ec;
  fs::path real = fs::canonical(path, ec);
  if (ec) return fail(errno_error(ec.value(), "open " + path.native()));
  UniqueFd dir = TRY(open_dir(AT_FDCWD, real.native()));
  TRY(check_private(dir.get(), real, "700"));
  UniqueFd lock = TRY(take_lock(dir.get(), real));
  return StateFolder(std::move(real), std::move(dir), std::move(lock));
}

Result<void> StateFolder::reserve_database() const {
  UniqueFd fd(::openat(dir_.get(), "state.db", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail_errno("open " + database().native());
  if (::fchmod(fd.get(), 0600) != 0) return fail_errno("chmod " + database().native());
  return {};
}

Result<std::optional<SecretKey>> StateFolder::load_key() const {
  UniqueFd fd(::openat(dir_.get(), kKeyFile, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<SecretKey>();
  fs::path path = path_ / kKeyFile;
  if (!fd) return fail_errno("open " + path.native());
  TRY(check_private(fd.get(), path, "600"));
  unsigned char bytes[kSecretKeySize + 1];
  ScopeExit forget([&] { OPENSSL_cleanse(bytes, sizeof bytes); });
  ssize_t size = ::read(fd.get(), bytes, sizeof bytes);
  if (size < 0) return fail_errno("read " + path.native());
  if (size != static_cast<ssize_t>(kSecretKeySize))
    return fail(Errc::internal, path.native() + " is not a key of 32 bytes",
                "put a backup of it in its place: without it sealed values cannot be read");
  SecretKey key;
  std::memcpy(key.data(), bytes, key.size());
  return std::optional(key);
}

Result<SecretKey> StateFolder::make_key() const {
  std::string name = (path_ / kKeyFile).native();
  SecretKey key = random_secret_key();
  // Under another name first: half a key must never be taken for one.
  if (::unlinkat(dir_.get(), kNewKeyFile, 0) != 0 && errno != ENOENT)
    return fail_errno("remove " + name + ".new");
  UniqueFd fd(::openat(dir_.get(), kNewKeyFile, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return fail_errno("make " + name);
  TRY(write_all(fd.get(), key, name));
  if (::fsync(fd.get()) != 0) return fail_errno("sync " + name);
  if (::renameat2(dir_.get(), kNewKeyFile, dir_.get(), kKeyFile, RENAME_NOREPLACE) != 0)
    return fail_errno("make " + name);
  if (::fsync(dir_.get()) != 0) return fail_errno("sync " + path_.native());
  return key;
}

}  // namespace asr
