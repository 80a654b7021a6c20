#include "policy/spec.hpp"

#include <algorithm>
#include <array>

namespace asr {

using namespace std::chrono_literals;

Result<Environment> parse_environment(std::string_view text) {
  if (text == "host") return Environment{};
  for (auto [prefix, kind] : {std::pair{std::string_view("folder:"), Environment::Kind::folder},
                              std::pair{std::string_view("tar:"), Environment::Kind::tarball}}) {
    if (!text.starts_with(prefix)) continue;
    text.remove_prefix(prefix.size());
    if (text.empty())
      return fail(Errc::invalid, "environment " + std::string(prefix) + " has no path");
    return Environment{kind, std::string(text)};
  }
  return fail(Errc::invalid, "unknown environment " + std::string(text),
              "use host, folder:PATH or tar:PATH");
}

std::string to_string(const Environment& environment) {
  switch (environment.kind) {
    case Environment::Kind::host:
      return "host";
    case Environment::Kind::folder:
      return "folder:" + environment.path;
    case Environment::Kind::tarball:
      return "tar:" + environment.path;
  }
  return "host";
}

Result<Preset> parse_preset(std::string_view text) {
  if (text == "strict") return Preset::strict;
  if (text == "standard") return Preset::standard;
  return fail(Errc::invalid, "unknown preset " + std::string(text), "use strict or standard");
}

Result<SyscallTier> parse_tier(std::string_view text) {
  if (text == "strict") return SyscallTier::strict;
  if (text == "browser") return SyscallTier::browser;
  return fail(Errc::invalid, "unknown system call tier " + std::string(text),
              "use strict or browser");
}

std::string_view to_string(Preset preset) noexcept {
  return preset == Preset::strict ? "strict" : "standard";
}
std::string_view to_string(RootMode mode) noexcept {
  return mode == RootMode::read_only ? "read_only" : "writable";
}
std::string_view to_string(Network network) noexcept {
  switch (network) {
    case Network::none:
      return "none";
    case Network::loopback:
      return "loopback";
    case Network::proxied:
      return "proxied";
    case Network::full:
      return "full";
  }
  return "none";
}
std::string_view to_string(SyscallTier tier) noexcept {
  return tier == SyscallTier::strict ? "strict" : "browser";
}

SandboxSpec spec_of(Preset preset) {
  SandboxSpec spec;
  if (preset == Preset::strict) {
    spec.root = RootMode::read_only;
    spec.network = Network::none;
    spec.limits.memory_bytes = 256ULL << 20;
    spec.limits.disk_bytes = 64ULL << 20;
    spec.limits.pids = 64;
    spec.limits.inodes = 16384;
    spec.limits.open_files = 1024;
    spec.limits.wall_time = 5s;
    spec.limits.cpu_time = 5s;
    spec.limits.output_bytes = 4ULL << 20;
  }
  return spec;
}

namespace {

// The parts of a path between its slashes, if each is an ordinary name.
std::optional<std::vector<std::string>> plain_parts(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= path.size();) {
    std::size_t to = std::min(path.find('/', from), path.size());
    std::string part(path.substr(from, to - from));
    if (part.empty() || part == "." || part == ".." || part.size() > 255 ||
        part.find('\0') != std::string::npos)
      return std::nullopt;
    parts.push_back(std::move(part));
    from = to + 1;
  }
  return parts;
}

// Where nothing but the sandbox's own parts may lie.
constexpr std::array<std::string_view, 14> kReserved{"proc",   "dev",  "sys", "usr",   "etc",
                                                     "bin",    "sbin", "lib", "lib32", "lib64",
                                                     "libx32", "boot", "run", "tmp"};

Result<void> check_target(const std::string& target) {
  constexpr std::size_t kMostTarget = 200;
  auto bad = [&](const char* why) {
    return fail(Errc::invalid, "a volume cannot appear at " + target + ": " + why,
                "use a place such as /workspace/data, /data or /mnt/data");
  };
  if (!target.starts_with('/')) return bad("it is not absolute");
  if (target.size() > kMostTarget) return bad("it is too long");
  auto parts = plain_parts(std::string_view(target).substr(1));
  if (!parts) return bad("it is not a plain path");
  if (std::find(kReserved.begin(), kReserved.end(), parts->front()) != kReserved.end())
    return bad("that part is the sandbox's own");
  return {};
}

Result<void> check_volumes(const SandboxSpec& spec) {
  if (spec.volumes.size() > kMostVolumes)
    return fail(Errc::invalid, "more than " + std::to_string(kMostVolumes) + " volumes");
  for (std::size_t i = 0; i < spec.volumes.size(); ++i) {
    TRY(check_storage_path(spec.volumes[i].source));
    TRY(check_target(spec.volumes[i].target));
    for (std::size_t j = 0; j < i; ++j)
      if (spec.volumes[i].target == spec.volumes[j].target)
        return fail(Errc::invalid, "two volumes at " + spec.volumes[i].target);
  }
  return {};
}

}  // namespace

Result<void> check_storage_path(const std::string& path) {
  if (path.size() < 1024 && plain_parts(path)) return {};
  return fail(Errc::invalid, "not a name below the storage folder: " + path,
              "give a relative path without .. and //");
}

Result<void> check(const SandboxSpec& spec) {
  if (spec.disk) TRY(check_storage_path(spec.disk->path));
  TRY(check_volumes(spec));
  if (spec.network == Network::proxied && spec.proxy_port == 0)
    return fail(Errc::invalid, "the proxy has no port", "3128 is the usual one");
  if (spec.environment.kind != Environment::Kind::host && spec.environment.path.empty())
    return fail(Errc::invalid, "the environment has no path");
  if (!spec.environment.workspace.empty() && spec.disk)
    return fail(Errc::invalid, "a workspace from a folder and one from a disk",
                "leave one of them out");
  return check(spec.limits, spec.disk ? FilesIn::disk : FilesIn::memory);
}

std::string pool_key(const SandboxSpec& spec) {
  std::string key = to_string(spec.environment);
  if (!spec.environment.workspace.empty()) key += "|on:" + spec.environment.workspace;
  const Limits& limits = spec.limits;
  for (std::uint64_t part :
       {static_cast<std::uint64_t>(spec.root), static_cast<std::uint64_t>(spec.network),
        static_cast<std::uint64_t>(spec.network == Network::proxied ? spec.proxy_port : 0),
        static_cast<std::uint64_t>(spec.tier), limits.memory_bytes,
        static_cast<std::uint64_t>(limits.milli_cpus), static_cast<std::uint64_t>(limits.pids),
        limits.disk_bytes, limits.inodes, static_cast<std::uint64_t>(limits.open_files)})
    key += "|" + std::to_string(part);
  return key;
}

}  // namespace asr
