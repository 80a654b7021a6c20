// Everything a new sandbox process needs to set itself up, decided and allocated before clone3(),
// so that the child only walks it.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace asr {

// In the order in which they run. The number of a failed step is what the daemon is told.
enum class LaunchStep : std::uint8_t {
  join_groups,
  wait_for_ids,
  take_ids,
  scratch_mount,
  scratch_folders,
  root_mount,
  layer_mounts,
  writable_mounts,
  proc_mount,
  kernel_settings,
  inner_namespace,
  proc_masks,
  dev_mounts,
  volume_mounts,
  loopback,
  enter_root,
  join_cpu_group,
  limits,
  drop_privileges,
  landlock,
  gate,
};
inline constexpr std::size_t kLaunchSteps = 21;
std::string_view to_string(LaunchStep step) noexcept;

// The id of pid 1 in its own (outer) user namespace. It is not mapped in the inner one, where the
// workload lives: to the workload pid 1 is nobody, and out of reach.
inline constexpr std::uint32_t kGuestId = 65535;
inline constexpr std::uint32_t kIdsPerSandbox = 65536;

// Who runs programs when nobody says otherwise.
inline constexpr std::uint32_t kUserId = 1000;

struct MountedLayer {
  const char* stage_path;  // In the zygote's root, e.g. "/layers/1".
  const char* target;      // "" for the root, or e.g. "usr".
  bool users;              // the user's to write, above it, in a read-only sandbox as well
};

// Folders of every sandbox's root, made at its launch above whatever the environment has there: a
// folder in the upper layer hides links of the same name, so that no mount can be led astray.
struct LaunchFolder {
  const char* path;
  std::uint32_t mode;
  std::uint32_t id;
};
inline constexpr std::array<LaunchFolder, 7> kLaunchFolders{{{"proc", 0555, 0},
                                                             {"dev", 0755, 0},
                                                             {"tmp", 01777, 0},
                                                             {"workspace", 0755, kUserId},
                                                             {"home", 0755, 0},
                                                             {"home/user", 0755, kUserId},
                                                             {"root", 0700, 0}}};

inline constexpr std::size_t kMaxLayers = 8;
inline constexpr std::size_t kMaxJoins = 8;
inline constexpr std::size_t kMaxVolumes = 8;

// Owners of a volume that is a folder of the host's: inside they are 0 and up, on the host a range
// that nobody else has. A setuid file made inside is nothing special outside.
inline constexpr std::uint32_t kVolumeIds = 0xfffd0000;

// All pointers belong to the zygote's planner and outlive the child's set-up.
struct LaunchPlan {
  int guest_socket = -1;
  int sync_socket = -1;                // "ids are mapped" arrives here, with the id-mapped layers.
  std::array<int, kMaxJoins> joins{};  // tasks files of v1 groups
  std::size_t join_count = 0;
  int cpu_join = -1;  // tasks file of the v1 group that shares out the processors

  bool rootless = false;  // One id only: inner and outer user namespace share it.
  bool read_only = false;
  bool loopback = false;
  bool nested_namespaces = false;  // The browser tier: two of the three locks stay open.
  bool import_root = false;
  int landlock_abi = 0;
  bool piped_cores = false;

  const char* scratch_options = nullptr;  // of the tmpfs that holds what is written to memory
  std::array<MountedLayer, kMaxLayers> layers{};
  std::size_t layer_count = 0;
  bool idmapped = false;                      // Each layer's owners are those it has on the host.
  std::span<const char* const> masked_files;  // names in /proc
  std::span<const char* const> masked_folders;

  const char* resolv_conf = nullptr;  // what /etc/resolv.conf says; absent: what it does anyway
  bool disk = false;  // Comes first of the mounts that arrive on sync_socket; then the volumes.
  std::array<const char*, kMaxVolumes> volume_targets{};
  std::size_t volume_count = 0;

  std::uint32_t pids = 0;
  std::uint64_t file_bytes = 0;
  sock_fprog telling_gate{};
  sock_fprog quiet_gate{};  // where nobody can be told
};

// What the child hands to the guest once it is set up.
struct LaunchOutcome {
  int inner_userns = -1;
  int refusals = -1;  // Calls that the gate refuses wait here for their answer; -1: none does.
  int own_io = -1;    // what pid 1, and those that it has reaped, have read and written
  bool idmapped = false;
  std::array<std::uint32_t, kLaunchSteps> step_micros{};

  // Where what is written lies, and what it is compared to: out of every program's reach. Nothing
  // in a sandbox that only unpacks.
  int scratch = -1;
  int disk = -1;                            // that of the disk, if there is one
  std::array<int, kMaxLayers> lowers = {};  // of layers with something written above them, or -1
};

// Runs in the child of clone3(). On failure it sends one LaunchFailed frame on the guest socket and
// does not return.
void set_up_sandbox(const LaunchPlan& plan, LaunchOutcome& outcome) noexcept;

}  // namespace asr
