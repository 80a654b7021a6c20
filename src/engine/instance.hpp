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
//
// The keeper of an instance with a fixed name shares that lock, so that the instance lives on
// without a daemon. Which daemon may be it is decided by the lock on a second file, `daemon`.
class Instance {
 public:
  static Result<Instance> open(const std::filesystem::path& runtime_dir);
  // The one of this name below this folder. Conflict if another daemon is it.
  static Result<Instance> become(const std::filesystem::path& runtime_dir, const std::string& name);
  Instance(Instance&& other) noexcept = default;
  ~Instance();  // Removes the folder, unless it was left to the keeper.

  const InstanceId& id() const noexcept { return id_; }
  const std::filesystem::path& dir() const noexcept { return dir_; }

  // Somebody else held the lock when this began: the keeper, which is to share it again.
  bool needs_lock() const noexcept { return !lock_; }
  void hold(UniqueFd lock) noexcept { lock_ = std::move(lock); }
  UniqueFd copy_lock() const;
  void leave() noexcept;  // Ends our part in it; the folder stays.

 private:
  Instance() = default;
  enum class Name { random, fixed };
  static Result<Instance> make(const std::filesystem::path& runtime_dir, InstanceId id, Name name);
  Result<void> take_over();

  InstanceId id_;
  std::filesystem::path dir_;
  UniqueFd lock_;
  UniqueFd daemon_;
};

// Of an instance with a fixed name: lowercase letters, digits and _, at most 32.
Result<void> check_instance_name(const std::string& name);

// Removes what dead instances below `runtime_dir` left: processes, cgroups, folders, and what
// they were unpacking into `cache_dir`.
RecoveryReport recover(const std::filesystem::path& runtime_dir,
                       const std::filesystem::path& cache_dir);

std::filesystem::path default_runtime_dir();
std::filesystem::path default_cache_dir();

}  // namespace asr
