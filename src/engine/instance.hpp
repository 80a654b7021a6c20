// One running engine on this machine: its folder, its lock, and what is removed of those that died.
#pragma once

#include <filesystem>
#include <string>

#include "base/id.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/engine.hpp"

namespace asr {

// <runtime>/<instance>/ with a locked file `lock`. Whoever can take the lock of a folder knows that
// its owner is dead, and may remove everything that carries its name.
class Instance {
 public:
  static Result<Instance> open(const std::filesystem::path& runtime_dir);
  Instance(Instance&& other) noexcept = default;
  ~Instance();  // Removes the folder.

  const InstanceId& id() const noexcept { return id_; }
  const std::filesystem::path& dir() const noexcept { return dir_; }

 private:
  Instance() = default;
  InstanceId id_;
  std::filesystem::path dir_;
  UniqueFd lock_;
};

// Removes what dead instances below `runtime_dir` left: processes, cgroups, folders, and what
// they were unpacking into `cache_dir`.
RecoveryReport recover(const std::filesystem::path& runtime_dir,
                       const std::filesystem::path& cache_dir);

std::filesystem::path default_runtime_dir();
std::filesystem::path default_cache_dir();

}  // namespace asr
