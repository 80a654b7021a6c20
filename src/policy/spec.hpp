// What a sandbox is made of: environment, root, network, system calls, limits. Pure values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/limits.hpp"

namespace asr {

enum class Preset { strict, standard };

// Where the file system comes from.
struct Environment {
  enum class Kind {
    host,     // this machine's own /usr, read-only underneath
    folder,   // a root file system in a folder
    tarball,  // a root file system in a tar archive, unpacked once and kept
  };
  Kind kind = Kind::host;
  std::string path;  // Empty for host.
  // A folder of this machine that /workspace begins with, as its user's own. What is written there
  // lies in the sandbox: the folder stays as it is. Empty: /workspace begins empty.
  std::string workspace = {};

  friend auto operator<=>(const Environment&, const Environment&) = default;
};

// "host", "folder:PATH" or "tar:PATH".
Result<Environment> parse_environment(std::string_view text);
std::string to_string(const Environment& environment);

enum class RootMode {
  read_only,  // only /tmp, /workspace, /home/user and /dev/shm can be written
  writable,   // all of it, in a layer of the sandbox's own
};

enum class Network {
  none,      // an empty network namespace; not even loopback is up
  loopback,  // 127.0.0.1 works inside; nothing else can be reached
  proxied,   // the same, and connections to a port there come out of Sandbox::accept_egress()
  full,      // public addresses of the internet; only where EngineOptions::full_network says so
};

// Which system calls the workload may make.
enum class SyscallTier {
  strict,   // no namespaces, no mounts: what programs need and nothing else
  browser,  // and what Chromium's own sandbox needs: nested user, pid and network namespaces
};

// A file on the host that holds everything a sandbox writes but /tmp and /dev/shm. The next sandbox
// with the same one finds it all again. It is made when it is first used, with the size of
// Limits::disk_bytes; one at a time may use it.
struct PersistentDisk {
  std::string path;  // below EngineOptions::storage_dir

  friend bool operator==(const PersistentDisk&, const PersistentDisk&) = default;
};

// Files that several sandboxes may share, at the same time or one after the other.
struct Volume {
  std::string source;  // below EngineOptions::storage_dir; see Engine::make_volume()
  std::string target;  // where it appears inside
  bool read_only = false;

  friend bool operator==(const Volume&, const Volume&) = default;
};
inline constexpr std::size_t kMostVolumes = 8;

struct SandboxSpec {
  Environment environment;
  RootMode root = RootMode::writable;
  Network network = Network::loopback;
  std::uint16_t proxy_port = 3128;  // where programs find the proxy, with Network::proxied
  SyscallTier tier = SyscallTier::strict;
  Limits limits;
  std::optional<PersistentDisk> disk;
  std::vector<Volume> volumes;

  friend bool operator==(const SandboxSpec&, const SandboxSpec&) = default;
};

Result<Preset> parse_preset(std::string_view text);
Result<SyscallTier> parse_tier(std::string_view text);
std::string_view to_string(Preset preset) noexcept;
std::string_view to_string(RootMode mode) noexcept;
std::string_view to_string(Network network) noexcept;
std::string_view to_string(SyscallTier tier) noexcept;

SandboxSpec spec_of(Preset preset);
Result<void> check(const SandboxSpec& spec);

// A plain name below the storage folder: no "..", no link can lead out of it.
Result<void> check_storage_path(const std::string& path);

// Those with files of their own on the host are made for whoever asks, never in advance.
inline bool can_be_pooled(const SandboxSpec& spec) { return !spec.disk && spec.volumes.empty(); }

// Equal keys can be served from the same warm pool. Limits of single executions are not part of it.
std::string pool_key(const SandboxSpec& spec);

}  // namespace asr
