// An ext4 file system in a file of the host's: made by us, mounted by us, never looked into by
// anybody but the kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// Who owns the root folder of a new image.
enum class ImageOwner { root, user };

// Makes `name` in `dir`: sparse, for nobody else to read. It appears whole or not at all.
Result<void> make_image(int dir, const std::string& name, std::uint64_t bytes, std::uint64_t inodes,
                        ImageOwner owner);

// An image in use, on a loop device, locked against everybody else.
class DiskImage {
 public:
  DiskImage(DiskImage&& other) noexcept
      : file_(std::move(other.file_)), loop_(other.loop_), device_(std::move(other.device_)) {}

  // Conflict if somebody uses it.
  static Result<DiskImage> open(UniqueFd file);
  // One that an earlier process opened.
  static DiskImage adopt(UniqueFd file, unsigned loop, UniqueFd device);

  Result<UniqueFd> mount() const;  // detached
  unsigned loop() const noexcept { return loop_; }
  int file() const noexcept { return file_.get(); }
  int device() const noexcept { return device_.get(); }

  // With the last mount the device goes, too, from now on.
  void let_go() noexcept { device_.reset(); }
  bool is_mounted() const;  // or its device lives for another reason
  // Others may have it, whoever still holds a copy of its descriptor.
  void unlock() noexcept;
  // Another process goes on using it: nothing of it ends with this object.
  void leave() noexcept { left_ = true; }
  bool has_left() const noexcept { return left_; }

 private:
  DiskImage() = default;
  UniqueFd file_;  // has the lock
  unsigned loop_ = 0;
  UniqueFd device_;
  std::atomic<bool> left_{false};
};

}  // namespace asr
