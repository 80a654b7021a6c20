// The control groups of one engine instance: one group per sandbox in every hierarchy that is
// needed, below <mount>/agent-sandbox/<instance>/.
//
// An ended sandbox's groups are used again where that can be done without a trace. Making and
// removing them costs more than everything else the daemon does for a sandbox, and a removed group
// lives on in the kernel for as long as a single page it was the first to touch stays in memory.
//
// Life-cycle (freeze, kill, "is anything alive") always lives in the v2 tree, even where limits are
// v1's: a process frozen by v1 ignores SIGKILL until it is thawed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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

// The folder of all instances in each hierarchy.
inline constexpr const char* kCgroupFamily = "agent-sandbox";

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

// The groups lent to one sandbox, with what they had counted before it. Once they were given back,
// nothing done with this value reaches them any more: they may be another's.
struct Group {
  std::string name;  // the same in every hierarchy
  std::uint64_t loan = 0;
  std::uint64_t oom_kills_before = 0;
  Usage used_before;             // of cpu time and io
  bool used = false;             // somebody had it before
  std::optional<Limits> limits;  // that it has for certain
};

class Cgroups {
 public:
  // Finds what can be used and makes the instance's own groups. Never fails for what is missing:
  // facts() tells it.
  static std::shared_ptr<Cgroups> open(const InstanceId& instance, CgroupTotals totals);
  static std::shared_ptr<Cgroups> none() { return std::shared_ptr<Cgroups>(new Cgroups); }
  ~Cgroups() { close(); }
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;

  // Groups without a process. They limit nothing until limit() was called, which may well be while
  // the process is being born: nothing foreign runs in it before.
  Result<Group> take();
  // Groups that an earlier life of this instance lent, and that are still in use.
  Result<Group> adopt(Group group);
  Result<JoinFds> join_fds(const Group& group) const;
  Result<void> limit(Group& group, const Limits& limits) const;
  // Everything in it must be dead and reaped; an error otherwise, to be tried again.
  Result<void> give_back(const Group& group);
  // Removes the groups nobody has, and the instance's own once nobody has any.
  void close() noexcept;

  Result<void> freeze(const Group& group, bool frozen);
  bool can_freeze() const noexcept { return v2_.has_value(); }
  bool is_frozen(const Group& group) const;  // or on the way there

  // For a sandbox that was killed but is slow to end: kills every process of it at once, and gives
  // them the processor time to die in, ahead of all other sandboxes.
  void hasten_end(const Group& group) noexcept;

  // Fills what the groups know; the rest stays zero.
  void measure(const Group& group, Usage& usage) const;
  std::uint64_t oom_kills(const Group& group) const;

  bool limits_memory() const noexcept { return memory_ != nullptr; }
  // Whose the peak of a group's memory is: everybody's, or each reader's own once it was written
  // to.
  enum class Peak { none, shared, own };
  Peak peak_kind() const noexcept;
  Result<UniqueFd> open_peak(const Group& group) const;
  std::vector<IsolationFact> facts() const;

 private:
  struct Tree {
    Hierarchy hierarchy;
    UniqueFd instance;  // …/agent-sandbox/<instance>
    std::string path;
  };
  Cgroups() = default;
  Result<void> apply(const Tree& tree, const std::string& name, const Limits& limits) const;
  Result<void> remove(const std::string& name) const;
  Result<bool> is_empty(const std::string& name) const;
  bool can_be_used_again(const std::string& name) const;
  // Nothing if too much is still charged to it.
  std::optional<Group> made_as_new(const Group& used) const;
  bool is_lent(const Group& group) const;  // with mutex_ held
  std::uint64_t all_oom_kills(const std::string& name) const;
  void measure_time_and_io(const Group& group, Usage& usage) const;
  static std::optional<Tree> prepare(const Hierarchy& hierarchy, const InstanceId& instance,
                                     std::string& problem);

  std::vector<std::unique_ptr<Tree>> trees_;
  const Tree* memory_ = nullptr;
  const Tree* pids_ = nullptr;
  const Tree* cpu_ = nullptr;
  std::optional<std::size_t> v2_;  // index in trees_
  std::string problem_;

  mutable std::mutex mutex_;                   // for what follows
  std::vector<Group> spare_;                   // Used before, and empty.
  std::set<std::string> worn_;                 // Have settings that a next user must not inherit.
  std::map<std::string, std::uint64_t> lent_;  // by name: to which loan
  std::uint64_t last_loan_ = 0;
  bool closed_ = false;
};

std::vector<std::string> folders_in(int dir);  // names of the groups in a group

// Removes the groups an instance left behind but for those named, killing what is still in them.
// Counts what it found.
struct CgroupSweep {
  std::uint32_t sandboxes = 0;
  std::uint32_t processes = 0;
  std::vector<std::string> problems;
};
CgroupSweep sweep_cgroups(const InstanceId& instance, const std::set<std::string>& spared = {});

}  // namespace asr
