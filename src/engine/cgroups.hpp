// The control groups of one engine instance: one group per sandbox in every hierarchy that is
// needed, below <mount>/agent-sandbox/<instance>/.
//
// Life-cycle (freeze, kill, "is anything alive") always lives in the v2 tree, even where limits are
// v1's: a process frozen by v1 ignores SIGKILL until it is thawed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/usage.hpp"
#include "os/cgroup.hpp"
#include "policy/isolation.hpp"
#include "policy/limits.hpp"

namespace asr {

struct CgroupTotals {
  std::uint64_t memory_bytes = 0;  // of all sandboxes together
  std::uint32_t pids = 0;
};

// What a launch needs to put a new process into its groups.
struct JoinFds {
  UniqueFd v2;                     // Directory, for clone3(); may be absent.
  std::vector<UniqueFd> v1_tasks;  // Files named tasks, to be written "0" by the process itself.
  bool cpu_is_last = false;        // The last of these shares out the processors, and nothing else.
};

class Cgroups {
 public:
  // Finds what can be used and makes the instance's own groups. Never fails for what is missing:
  // facts() tells it.
  static Cgroups open(const InstanceId& instance, CgroupTotals totals);
  static Cgroups none() { return Cgroups(); }
  Cgroups(Cgroups&&) = default;

  // Makes the groups. They limit nothing until limit() was called, which may well be while the
  // process is being born: nothing foreign runs in it before.
  Result<JoinFds> create(const SandboxId& id);
  Result<void> limit(const SandboxId& id, const Limits& limits);
  // Everything in it must be dead and reaped; EBUSY otherwise, to be tried again.
  Result<void> remove(const SandboxId& id);
  void remove_instance();

  Result<void> freeze(const SandboxId& id, bool frozen);
  bool can_freeze() const noexcept { return v2_.has_value(); }

  // For a sandbox that was killed but is slow to end: kills every process of it at once, and gives
  // them the processor time to die in, ahead of all other sandboxes.
  void hasten_end(const SandboxId& id) const noexcept;

  // Fills what the groups know; the rest stays zero.
  void measure(const SandboxId& id, Usage& usage) const;
  std::uint64_t oom_kills(const SandboxId& id) const;

  bool limits_memory() const noexcept { return memory_ != nullptr; }
  std::vector<IsolationFact> facts() const;

 private:
  struct Tree {
    Hierarchy hierarchy;
    UniqueFd instance;  // …/agent-sandbox/<instance>
    std::string path;
  };
  Cgroups() = default;
  Result<void> apply(const Tree& tree, const std::string& name, const Limits& limits);
  static std::optional<Tree> prepare(const Hierarchy& hierarchy, const InstanceId& instance,
                                     std::string& problem);

  std::vector<std::unique_ptr<Tree>> trees_;
  const Tree* memory_ = nullptr;
  const Tree* pids_ = nullptr;
  const Tree* cpu_ = nullptr;
  std::optional<std::size_t> v2_;  // index in trees_
  std::string problem_;
};

// Removes the groups an instance left behind, killing what is still in them. Counts what it found.
struct CgroupSweep {
  std::uint32_t sandboxes = 0;
  std::uint32_t processes = 0;
  std::vector<std::string> problems;
};
CgroupSweep sweep_cgroups(const InstanceId& instance);

}  // namespace asr
