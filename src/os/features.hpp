// What this machine can give to a user like us, each thing tried rather than guessed. For `doctor`.
// Everything that might hurt is tried in a child process that has a deadline and leaves nothing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace asr {

enum class FeatureState {
  ok,
  limited,  // works, but less well or less safely than it could
  missing,
};

struct Feature {
  std::string name;  // "user_namespaces", "cgroup_memory", …: stable, for programs
  FeatureState state = FeatureState::ok;
  std::string detail;  // what was found
  std::string fix;     // a sentence with the command that mends it; empty when ok or out of reach

  friend bool operator==(const Feature&, const Feature&) = default;
};

struct CgroupController {
  enum class Version { none, v1, v2 };
  std::string name;  // memory, pids, cpu, io or freezer
  Version version = Version::none;
  std::string path;       // our own group in the hierarchy that has it; empty for none
  bool writable = false;  // groups can be made below `path`

  friend bool operator==(const CgroupController&, const CgroupController&) = default;
};

struct KernelFeatures {
  std::string release;
  std::vector<Feature> features;
  std::vector<CgroupController> controllers;  // always the five, in the order above

  const Feature* find(std::string_view name) const noexcept;
  const CgroupController* controller(std::string_view name) const noexcept;
};

// Takes some ten milliseconds; some seconds at most where probes hang.
KernelFeatures probe_features();

std::string_view to_string(FeatureState state) noexcept;
std::string_view to_string(CgroupController::Version version) noexcept;

// The five controllers from the texts of /proc/self/mountinfo and /proc/self/cgroup; `read` gives
// the text of another file, empty if there is none. `writable` is left out.
std::vector<CgroupController> find_controllers(
    std::string_view mountinfo, std::string_view self_cgroup,
    const std::function<std::string(const std::string&)>& read);

// Whether the caller's root is a chroot, as far as its mount table shows.
bool looks_chrooted(std::string_view mountinfo);

}  // namespace asr
