// What daemon and zygote say to each other: one Configure, then any number of Create.
//
//   Configure → Configured | LaunchRefused          Create + descriptors → Launched + pidfd |
//   LaunchRefused later, for every sandbox that ended: Reaped
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/frame.hpp"

namespace asr::wire {

enum class ZygoteType : std::uint16_t {
  configure = 128,
  create,
  configured = 192,
  launched,
  refused,
  reaped,
};

// One directory that becomes part of every sandbox of this zygote.
struct Layer {
  std::string source;  // On the host.
  std::string target;  // Below the sandbox's root; empty: the root itself. Several may share it.
  bool users = false;  // Whoever owns the directory is the workload's user inside.
  template <class V>
  void fields(V& v) {
    v(source), v(target), v(users);
  }
};

// One and the same, with its refusals told to a listener and without.
struct Gate {
  std::string telling;  // sock_filter[] as bytes
  std::string quiet;
  template <class V>
  void fields(V& v) {
    v(telling), v(quiet);
  }
};

// Comes with no descriptor. Paths are the daemon's own, never a guest's.
struct Configure {
  static constexpr auto kType = ZygoteType::configure;
  bool rootless = false;
  bool import = false;        // The only layer itself becomes the root, writable, to unpack into.
  std::string stage;          // An empty directory: the zygote's private root is mounted there.
  std::vector<Layer> layers;  // Topmost first.
  std::string fence;          // sock_filter[] as bytes
  Gate strict_gate;
  Gate browser_gate;
  std::uint64_t gate_secret = 0;
  std::int32_t landlock_abi = 0;
  bool piped_cores = false;  // core_pattern starts with '|': a core limit of 0 does not stop it.
  template <class V>
  void fields(V& v) {
    v(rootless), v(import), v(stage), v(layers), v(fence), v(strict_gate), v(browser_gate),
        v(gate_secret), v(landlock_abi), v(piped_cores);
  }
};

// A mount that comes with a request, and where it goes.
struct VolumeMount {
  std::string target;  // absolute, inside
  bool read_only = false;
  bool shifted = false;  // Its owners on the host are kVolumeIds and up, not 0 and up.
  template <class V>
  void fields(V& v) {
    v(target), v(read_only), v(shifted);
  }
};

// Descriptors: the guest's socket; then, if `into_cgroup`, the v2 group's directory; then
// `join_count` files named tasks of v1 groups, of which the last is the one that shares out the
// processors if `cpu_join_last`; then the disk's mount, if `disk`; then one mount per volume.
struct Create {
  static constexpr auto kType = ZygoteType::create;
  std::uint32_t first_id =
      0;  // First host uid and gid of this sandbox's 65536; unused when rootless.
  bool into_cgroup = false;
  std::uint32_t join_count = 0;
  bool cpu_join_last = false;
  bool read_only = false;
  bool loopback = false;
  std::uint16_t proxy_port = 0;  // 0: nobody listens for connections to be handed out.
  std::string resolv_conf;       // Empty: /etc/resolv.conf is the environment's.
  bool browser = false;
  bool sample_memory = false;  // No cgroup holds the memory limit: the guest watches it.
  std::uint64_t memory_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // of what lies in memory
  std::uint64_t file_bytes = 0;     // of one file, wherever it lies; 0 is no limit
  std::uint64_t inodes = 0;
  std::uint32_t pids = 0;
  bool disk = false;
  std::vector<VolumeMount> volumes;  // a folder before what lies in it
  template <class V>
  void fields(V& v) {
    v(first_id), v(into_cgroup), v(join_count), v(cpu_join_last), v(read_only), v(loopback),
        v(proxy_port), v(resolv_conf), v(browser), v(sample_memory), v(memory_bytes),
        v(scratch_bytes), v(file_bytes), v(inodes), v(pids), v(disk), v(volumes);
  }
};

struct Configured {
  static constexpr auto kType = ZygoteType::configured;
  bool idmaps = false;      // The layers' file systems can be id-mapped.
  std::uint32_t masks = 0;  // Entries of /proc that every sandbox hides.
  template <class V>
  void fields(V& v) {
    v(idmaps), v(masks);
  }
};

struct Launched {
  static constexpr auto kType = ZygoteType::launched;
  std::int32_t pid = 0;
  template <class V>
  void fields(V& v) {
    v(pid);
  }
};

struct LaunchRefused {
  static constexpr auto kType = ZygoteType::refused;
  std::uint8_t code = 0;  // an Errc
  std::string what;
  template <class V>
  void fields(V& v) {
    v(code), v(what);
  }
};

struct Reaped {
  static constexpr auto kType = ZygoteType::reaped;
  std::int32_t pid = 0;
  std::int32_t status = 0;
  template <class V>
  void fields(V& v) {
    v(pid), v(status);
  }
};

}  // namespace asr::wire
