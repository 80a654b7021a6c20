// What the two halves of the child's code share. Nothing here is for anybody else.
#pragma once

#include <array>
#include <cstddef>

#include "launch/plan.hpp"

namespace asr {

struct Child {
  const LaunchPlan& plan;
  LaunchOutcome& outcome;
  std::array<int, kMaxLayers> layer_mounts;       // id-mapped clones, or -1
  std::array<int, 1 + kMaxVolumes> extra_mounts;  // the disk's, if there is one; then the volumes'
};

int put_file(const char* path, const char* text) noexcept;

// A text that is put together without memory.
struct Text {
  char bytes[256];
  std::size_t size = 0;
  void add(const char* part) noexcept {
    while (*part != '\0' && size + 1 < sizeof bytes) bytes[size++] = *part++;
    bytes[size] = '\0';
  }
};

// Steps that build the file system, in the order of LaunchStep; see child_files.cpp.
int scratch_mount(Child& child) noexcept;
int scratch_folders(Child& child) noexcept;
int root_mount(Child& child) noexcept;
int layer_mounts(Child& child) noexcept;
int writable_mounts(Child& child) noexcept;
int proc_mount(Child& child) noexcept;
int proc_masks(Child& child) noexcept;
int dev_mounts(Child& child) noexcept;
int volume_mounts(Child& child) noexcept;
int enter_root(Child& child) noexcept;

}  // namespace asr
