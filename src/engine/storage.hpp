// What sandboxes have on the host's disk: their own disks and the volumes they share, below one
// folder that the engine's caller names.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/disk_image.hpp"
#include "engine/engine.hpp"
#include "engine/storage_lease.hpp"
#include "policy/spec.hpp"

namespace asr {

// Ready to be attached to a new sandbox.
struct StorageMounts {
  struct Mount {
    UniqueFd fd;
    bool shifted = false;     // its owners on the host are kVolumeIds and up
    std::uint64_t bytes = 0;  // 0: no limit
  };
  UniqueFd disk;
  std::vector<Mount> volumes;  // as in the spec
  std::shared_ptr<StorageLease> lease;
};

// All that may take time happens on a thread of its own.
class Storage : public std::enable_shared_from_this<Storage> {
 public:
  Storage(asio::any_io_executor executor, std::filesystem::path root);
  ~Storage();  // Waits for what is under way.

  asio::awaitable<Result<StorageMounts>> mount(SandboxSpec spec);
  asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options);
  asio::awaitable<Result<void>> remove(std::string path);

  // What a sandbox of an earlier engine uses.
  Result<std::shared_ptr<StorageLease>> adopt(const std::vector<StorageRecord>& records,
                                              std::vector<UniqueFd> fds);

  // Images that nobody uses any more and that are still being given up.
  std::size_t releasing() const;

 private:
  friend class StorageLease;
  using Key = std::pair<dev_t, ino_t>;
  static Result<Key> key_of(int file);

  // On the thread.
  Result<StorageMounts> mount_now(const SandboxSpec& spec);
  Result<UniqueFd> open_or_make_disk(const SandboxSpec& spec, int root);
  Result<std::shared_ptr<DiskImage>> open_image(UniqueFd file, StorageRecord::Kind kind);
  Result<StorageMounts::Mount> mount_volume(const Volume& volume, int root, StorageLease& lease);
  Result<StorageMounts::Mount> mount_folder(const Volume& volume, UniqueFd folder,
                                            StorageLease& lease);
  Result<void> make_volume_now(const std::string& source, const VolumeOptions& options);
  Result<void> remove_now(const std::string& path);
  asio::awaitable<void> release(std::unique_ptr<DiskImage> image, Key key);

  template <class T>
  asio::awaitable<Result<T>> on_thread(std::function<Result<T>()> work);
  Result<UniqueFd> open_root() const;
  std::shared_ptr<DiskImage> share(DiskImage image, Key key, StorageRecord::Kind kind);
  void give_up(std::unique_ptr<DiskImage> image, Key key);
  void expect_end(int file);
  asio::thread_pool& thread();

  asio::any_io_executor executor_;
  std::filesystem::path root_;
  mutable std::mutex mutex_;  // for what follows
  std::map<Key, std::weak_ptr<DiskImage>> volumes_;
  std::set<Key> ending_;  // of sandboxes that have ended, and not free yet
  std::size_t releasing_ = 0;
  std::unique_ptr<asio::thread_pool> thread_;
};

}  // namespace asr
