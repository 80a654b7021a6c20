#include "engine/storage_lease.hpp"

#include <sys/file.h>

#include "engine/storage.hpp"

namespace asr {

StorageLease::~StorageLease() {
  if (left_) return;
  // Not by closing alone: the keeper may be slow to forget its copies of the descriptors.
  for (const UniqueFd& folder : folders_) ::flock(folder.get(), LOCK_UN);
}

void StorageLease::end() {
  if (auto storage = storage_.lock(); storage && disk_) storage->expect_end(disk_->file());
}

void StorageLease::leave() {
  left_ = true;
  if (disk_) disk_->leave();
  for (const auto& volume : volumes_) volume->leave();
}

std::vector<StorageRecord> StorageLease::records() const {
  std::vector<StorageRecord> records;
  if (disk_) records.push_back({StorageRecord::Kind::disk, disk_->loop()});
  for (const auto& volume : volumes_)
    records.push_back({StorageRecord::Kind::volume, volume->loop()});
  for (std::size_t i = 0; i < folders_.size(); ++i)
    records.push_back({StorageRecord::Kind::folder, 0});
  return records;
}

std::vector<int> StorageLease::descriptors() const {
  std::vector<int> fds;
  if (disk_) fds.push_back(disk_->file());
  for (const auto& volume : volumes_) {
    fds.push_back(volume->file());
    fds.push_back(volume->device());
  }
  for (const UniqueFd& folder : folders_) fds.push_back(folder.get());
  return fds;
}

}  // namespace asr
