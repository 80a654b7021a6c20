// What one sandbox uses of the host's disk, for as long as it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.hpp"
#include "engine/disk_image.hpp"

namespace asr {

class Storage;

// What the next engine must know of it. Its file goes with it; of a volume that is an image, the
// loop device, too.
struct StorageRecord {
  enum class Kind : std::uint8_t { disk, volume, folder };
  Kind kind = Kind::disk;
  std::uint32_t loop = 0;
};

// Given up when dropped.
class StorageLease {
 public:
  StorageLease() = default;
  ~StorageLease();
  StorageLease(const StorageLease&) = delete;
  StorageLease& operator=(const StorageLease&) = delete;

  // The sandbox has ended: whoever wants its disk next need only wait.
  void end();
  // The sandbox lives on without us: nothing is given up.
  void leave();

  std::vector<StorageRecord> records() const;
  std::vector<int> descriptors() const;  // in the order of the records; borrowed

 private:
  friend class Storage;
  std::weak_ptr<Storage> storage_;
  std::shared_ptr<DiskImage> disk_;
  std::vector<std::shared_ptr<DiskImage>> volumes_;
  std::vector<UniqueFd> folders_;  // locked against being removed
  bool left_ = false;
};

}  // namespace asr
