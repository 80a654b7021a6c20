#include "engine/storage.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "engine/storage_paths.hpp"
#include "launch/plan.hpp"
#include "os/detached_mount.hpp"
#include "os/file.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

// A sandbox that has ended gives its disk free when the kernel has written what it held back.
constexpr auto kFreeWithin = 60s;
constexpr auto kTryAgain = 2ms;

// Says which environment a disk's layer lies above: no program can reach it.
constexpr const char* kMarker = "environment";

Result<void> check_marker(int mount, const std::string& environment) {
  UniqueFd top = TRY(open_dir(mount, "."));
  auto made_for = read_small_file(top.get(), kMarker);
  if (made_for && *made_for == environment) return {};
  if (made_for && !made_for->empty())
    return fail(Errc::conflict, "the disk was made for the environment " + *made_for,
                "use it with that one, or another disk");
  UniqueFd file(::openat(top.get(), kMarker, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), environment.data(), environment.size()) !=
                   static_cast<ssize_t>(environment.size()))
    return fail_errno("write to the disk");
  return {};
}

}  // namespace

Storage::Storage(asio::any_io_executor executor, std::filesystem::path root)
    : executor_(std::move(executor)), root_(std::move(root)) {}

Storage::~Storage() {
  if (thread_) thread_->join();
}

asio::thread_pool& Storage::thread() {
  std::lock_guard lock(mutex_);
  if (!thread_) thread_ = std::make_unique<asio::thread_pool>(1);
  return *thread_;
}

template <class T>
asio::awaitable<Result<T>> Storage::on_thread(std::function<Result<T>()> work) {
  auto self = shared_from_this();
  auto run = [](std::function<Result<T>()> job) -> asio::awaitable<Result<T>> { co_return job(); };
  auto deadline = std::chrono::steady_clock::now() + kFreeWithin;
  for (;;) {
    auto running = asio::co_spawn(thread(), run(work), asio::use_awaitable);
    auto result = co_await std::move(running);
    // In use by one that has ended: it is a matter of time.
    bool wait = !result && result.error().code == Errc::timeout;
    if (!wait || std::chrono::steady_clock::now() >= deadline) co_return result;
    asio::steady_timer pause(executor_, kTryAgain);
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<Result<StorageMounts>> Storage::mount(SandboxSpec spec) {
  return on_thread<StorageMounts>([this, spec = std::move(spec)] { return mount_now(spec); });
}

asio::awaitable<Result<void>> Storage::make_volume(std::string source, VolumeOptions options) {
  return on_thread<void>(
      [this, source = std::move(source), options] { return make_volume_now(source, options); });
}

asio::awaitable<Result<void>> Storage::remove(std::string path) {
  return on_thread<void>([this, path = std::move(path)] { return remove_now(path); });
}

Result<UniqueFd> Storage::open_root() const {
  if (root_.empty())
    return fail(Errc::unsupported, "this engine has no folder for disks and volumes",
                "set EngineOptions::storage_dir");
  return open_storage_root(root_);
}

Result<Storage::Key> Storage::key_of(int file) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return fail_errno("stat");
  return Key{info.st_dev, info.st_ino};
}

// ---- what a sandbox gets
// -------------------------------------------------------------------------

Result<StorageMounts> Storage::mount_now(const SandboxSpec& spec) {
  UniqueFd root = TRY(open_root());
  StorageMounts mounts;
  mounts.lease = std::make_shared<StorageLease>();
  mounts.lease->storage_ = weak_from_this();
  if (spec.disk) {
    UniqueFd file = TRY(open_or_make_disk(spec, root.get()));
    mounts.lease->disk_ = TRY(open_image(std::move(file), StorageRecord::Kind::disk));
    mounts.disk = TRY(mounts.lease->disk_->mount());
    TRY(check_marker(mounts.disk.get(), to_string(spec.environment)));
    mounts.lease->disk_->let_go();  // The sandbox's mount holds it.
  }
  for (const Volume& volume : spec.volumes)
    mounts.volumes.push_back(TRY(mount_volume(volume, root.get(), *mounts.lease)));
  return mounts;
}

Result<UniqueFd> Storage::open_or_make_disk(const SandboxSpec& spec, int root) {
  auto file = open_storage_file(root, spec.disk->path);
  if (file || file.error().code != Errc::not_found) return file;
  StoragePlace place = TRY(make_place(root, spec.disk->path));
  auto made = make_image(place.folder.get(), place.name, spec.limits.disk_bytes, spec.limits.inodes,
                         ImageOwner::root);
  if (!made && made.error().code != Errc::conflict) return fail(std::move(made).error());
  return open_storage_file(root, spec.disk->path);
}

Result<std::shared_ptr<DiskImage>> Storage::open_image(UniqueFd file, StorageRecord::Kind kind) {
  Key key = TRY(key_of(file.get()));
  {
    std::lock_guard lock(mutex_);
    if (kind == StorageRecord::Kind::volume)
      if (auto found = volumes_.find(key); found != volumes_.end())
        if (auto shared = found->second.lock()) return shared;
    if (ending_.contains(key)) return fail(Errc::timeout, "it is being given up");
  }
  return share(TRY(DiskImage::open(std::move(file))), key, kind);
}

Result<StorageMounts::Mount> Storage::mount_volume(const Volume& volume, int root,
                                                   StorageLease& lease) {
  auto folder = open_storage_folder(root, volume.source);
  if (folder) return mount_folder(volume, *std::move(folder), lease);
  if (folder.error().code != Errc::not_found) return fail(std::move(folder).error());
  auto file = open_storage_file(root, volume.source);
  if (!file && file.error().code == Errc::not_found)
    return fail(Errc::not_found, "there is no volume " + volume.source,
                "make it first: Engine::make_volume()");
  if (!file) return fail(std::move(file).error());
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return fail_errno("stat " + volume.source);
  auto image = TRY(open_image(*std::move(file), StorageRecord::Kind::volume));
  UniqueFd mount = TRY(image->mount());
  ::unlinkat(mount.get(), "lost+found", AT_REMOVEDIR);  // Of no use to anybody inside.
  lease.volumes_.push_back(std::move(image));
  return StorageMounts::Mount{std::move(mount), false, static_cast<std::uint64_t>(info.st_size)};
}

Result<StorageMounts::Mount> Storage::mount_folder(const Volume& volume, UniqueFd folder,
                                                   StorageLease& lease) {
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return fail_errno("stat " + volume.source);
  bool ours = info.st_uid >= kVolumeIds && info.st_uid - kVolumeIds < kIdsPerSandbox;
  if (!ours && !volume.read_only)
    return fail(Errc::invalid, volume.source + " is not a volume: nobody inside could write to it",
                "make it with Engine::make_volume(), or attach it read-only");
  if (::flock(folder.get(), LOCK_SH | LOCK_NB) != 0)
    return fail(Errc::conflict, "the volume " + volume.source + " is being removed");
  UniqueFd mount = TRY(clone_mount(folder.get()));
  lease.folders_.push_back(std::move(folder));
  return StorageMounts::Mount{std::move(mount), true, 0};
}

// ---- volumes
// -------------------------------------------------------------------------------------

Result<void> Storage::make_volume_now(const std::string& source, const VolumeOptions& options) {
  TRY(check_storage_path(source));
  UniqueFd root = TRY(open_root());
  StoragePlace place = TRY(make_place(root.get(), source));
  if (options.bytes != 0)
    return make_image(place.folder.get(), place.name, options.bytes, options.inodes,
                      ImageOwner::user);
  int dir = place.folder.get();
  if (::mkdirat(dir, place.name.c_str(), 0755) != 0) return fail_errno("make volume " + source);
  unsigned owner = kVolumeIds + kUserId;
  if (::fchownat(dir, place.name.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("make volume " + source);
  return {};
}

Result<void> Storage::remove_now(const std::string& path) {
  TRY(check_storage_path(path));
  UniqueFd root = TRY(open_root());
  auto thing = open_storage_folder(root.get(), path);
  if (!thing) thing = open_storage_file(root.get(), path);
  if (!thing) return fail(std::move(thing).error());
  Key key = TRY(key_of(thing->get()));
  {
    std::lock_guard lock(mutex_);
    if (ending_.contains(key)) return fail(Errc::timeout, "it is being given up");
  }
  if (::flock(thing->get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Errc::conflict, path + " is in use", "end the sandboxes that use it first");
  StoragePlace place = TRY(make_place(root.get(), path));
  return remove_tree(place.folder.get(), place.name);
}

// ---- giving up
// -----------------------------------------------------------------------------------

std::shared_ptr<DiskImage> Storage::share(DiskImage image, Key key, StorageRecord::Kind kind) {
  auto end = [weak = weak_from_this(), key](DiskImage* unused) {
    std::unique_ptr<DiskImage> owned(unused);
    auto self = weak.lock();
    if (self && !owned->has_left()) self->give_up(std::move(owned), key);
  };
  std::shared_ptr<DiskImage> shared(new DiskImage(std::move(image)), end);
  if (kind == StorageRecord::Kind::volume) {
    std::lock_guard lock(mutex_);
    volumes_[key] = shared;
  }
  return shared;
}

void Storage::expect_end(int file) {
  auto key = key_of(file);
  if (!key) return;
  std::lock_guard lock(mutex_);
  ending_.insert(*key);
}

void Storage::give_up(std::unique_ptr<DiskImage> image, Key key) {
  {
    std::lock_guard lock(mutex_);
    ending_.insert(key);
    ++releasing_;
  }
  asio::co_spawn(thread(), release(std::move(image), key), asio::detached);
}

// The lock is given back only when the last mount is gone: until then the kernel has things to
// write, and a second device for the same file would know nothing of them.
asio::awaitable<void> Storage::release(std::unique_ptr<DiskImage> image, Key key) {
  image->let_go();
  auto deadline = std::chrono::steady_clock::now() + kFreeWithin;
  while (image->is_mounted() && std::chrono::steady_clock::now() < deadline) {
    asio::steady_timer pause(*thread_, kTryAgain);
    co_await pause.async_wait(asio::use_awaitable);
  }
  image->unlock();  // The keeper may be slow to forget its copy of the descriptor.
  image.reset();
  std::lock_guard lock(mutex_);
  if (auto found = volumes_.find(key); found != volumes_.end() && found->second.expired())
    volumes_.erase(found);
  ending_.erase(key);
  --releasing_;
}

std::size_t Storage::releasing() const {
  std::lock_guard lock(mutex_);
  return releasing_;
}

Result<std::shared_ptr<StorageLease>> Storage::adopt(const std::vector<StorageRecord>& records,
                                                     std::vector<UniqueFd> fds) {
  auto lease = std::make_shared<StorageLease>();
  lease->storage_ = weak_from_this();
  std::size_t next = 0;
  for (const StorageRecord& record : records) {
    bool with_device = record.kind == StorageRecord::Kind::volume;
    if (next + (with_device ? 2 : 1) > fds.size())
      return fail(Errc::internal, "wrong number of descriptors");
    UniqueFd file = std::move(fds[next++]);
    UniqueFd device = with_device ? std::move(fds[next++]) : UniqueFd();
    if (record.kind == StorageRecord::Kind::folder) {
      lease->folders_.push_back(std::move(file));
      continue;
    }
    Key key = TRY(key_of(file.get()));
    std::shared_ptr<DiskImage> image;
    if (auto found = volumes_.find(key); with_device && found != volumes_.end())
      image = found->second.lock();
    if (!image)
      image = share(DiskImage::adopt(std::move(file), record.loop, std::move(device)), key,
                    record.kind);
    if (with_device)
      lease->volumes_.push_back(std::move(image));
    else
      lease->disk_ = std::move(image);
  }
  return lease;
}

}  // namespace asr
