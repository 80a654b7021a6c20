#include "engine/isolation_report.hpp"

#include "os/landlock.hpp"

namespace asr {

Isolation isolation_of(const SandboxSpec& spec, const wire::Hello& hello, const Cgroups& cgroups,
                       bool rootless, VolumeSizes volumes) {
  Isolation isolation;
  auto add = [&](std::string name, Guarantee guarantee, std::string mechanism,
                 std::string note = {}) {
    isolation.facts.push_back({std::move(name), guarantee, std::move(mechanism), std::move(note)});
  };
  add("namespaces", Guarantee::full, "user, mount, pid, network, ipc, uts and cgroup namespaces");
  if (rootless)
    add("uid_range", Guarantee::none, "one id, the caller's own",
        "an ordinary user has one id only: run agent-sandbox as root for a range per sandbox");
  else
    add("uid_range", Guarantee::full, "65536 host ids and an owner id of its own");
  if (rootless)
    add("kernel_quotas", Guarantee::none, "shared with the caller",
        "inotify and similar quotas are counted per user");
  else
    add("kernel_quotas", Guarantee::full, "counted for the sandbox's own owner id");
  if (spec.tier == SyscallTier::browser)
    add("nested_user_namespaces", Guarantee::partial, "at most 8, for the browser's own sandbox",
        "the browser tier lets programs make user namespaces: more of the kernel is in reach");
  else
    add("nested_user_namespaces", Guarantee::full,
        "refused by seccomp, by a limit of one and by chroot");
  add("system_calls", Guarantee::full,
      "seccomp allow-list, tier " + std::string(to_string(spec.tier)));
  if (hello.landlock_abi >= kLandlockScopes)
    add("landlock", Guarantee::full,
        "scopes for signals and abstract sockets, ABI " + std::to_string(hello.landlock_abi));
  else
    add("landlock", Guarantee::none, "",
        "the kernel has no Landlock scopes (Linux 6.12); namespaces hold alone");
  add("file_owners", hello.idmapped ? Guarantee::full : Guarantee::partial,
      hello.idmapped ? "id-mapped layers" : "layers as they are",
      hello.idmapped
          ? ""
          : "files of the environment belong to nobody inside, and root cannot change them");
  add("disk_limit", Guarantee::full,
      spec.disk ? "a file system of its own, of limited size and number of files"
                : "tmpfs of limited size and number of files");
  bool unlimited = volumes == VolumeSizes::unlimited;
  if (!spec.volumes.empty())
    add("volumes", unlimited ? Guarantee::partial : Guarantee::full,
        "id-mapped mounts, nosuid, nodev",
        unlimited ? "a volume that is a folder has no limit: make it with a size" : "");
  if (spec.network != Network::full)  // The engine adds what it gave.
    add("network", Guarantee::full,
        spec.network == Network::none ? "an empty network namespace"
        : spec.network == Network::loopback
            ? "a network namespace with loopback only"
            : "a network namespace with loopback only; connections to "
              "one port there are handed to the engine's caller");
  for (IsolationFact fact : cgroups.facts()) {
    if (fact.name == "memory_limit" && fact.guarantee == Guarantee::none) {
      fact.guarantee = Guarantee::partial;
      fact.mechanism = "resident memory is sampled every 50 ms and the largest process killed";
    }
    if (fact.name == "pids_limit" && fact.guarantee == Guarantee::none) {
      fact.guarantee = Guarantee::full;
      fact.mechanism = "limit of the inner user namespace";
      fact.note.clear();
    }
    isolation.facts.push_back(std::move(fact));
  }
  add("side_channels", Guarantee::none, "",
      "caches and cores are shared with the host and other sandboxes");
  return isolation;
}

}  // namespace asr
