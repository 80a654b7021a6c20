#include "engine/cgroups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/scope_exit.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

// Room for pid 1 and its workers above what the workload may have.
constexpr std::uint32_t kGuestPids = 16;
// Groups kept for the next sandbox, and what may still be charged to one of them.
constexpr std::size_t kMostSpare = 16;
constexpr std::uint64_t kMostLeft = 1 << 20;

Result<void> make_group(int dir, const std::string& name) {
  if (::mkdirat(dir, name.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno("make a group");
  return {};
}

// Lets the groups below `dir` use these controllers. One at a time: the kernel refuses a list
// whole.
void delegate(int dir, const Hierarchy& hierarchy) {
  for (const char* controller : {"memory", "pids", "cpu", "io"})
    if (hierarchy.has(controller))
      (void)write_value(dir, "cgroup.subtree_control", std::string("+") + controller);
}

bool is_delegated(int dir, std::string_view controller) {
  auto names = read_small_file(dir, "cgroup.subtree_control");
  return names &&
         (" " + *names + " ").find(" " + std::string(controller) + " ") != std::string::npos;
}

std::string cpu_quota(std::uint32_t milli_cpus) {
  return std::to_string(static_cast<std::uint64_t>(milli_cpus) * 100);  // µs of every 100 ms
}

std::string name_of(std::uint64_t number) { return "s" + std::to_string(number); }

// 0 for what is no group of ours.
std::uint64_t number_of(const std::string& name) {
  std::uint64_t number = 0;
  if (name.starts_with('s')) std::from_chars(name.data() + 1, name.data() + name.size(), number);
  return name == name_of(number) ? number : 0;
}

}  // namespace

std::optional<Cgroups::Tree> Cgroups::prepare(const Hierarchy& hierarchy,
                                              const InstanceId& instance, std::string& problem) {
  auto attempt = [&]() -> Result<Tree> {
    UniqueFd root = TRY(open_dir(AT_FDCWD, hierarchy.mount));
    if (hierarchy.v2) delegate(root.get(), hierarchy);
    TRY(make_group(root.get(), kCgroupFamily));
    UniqueFd family = TRY(open_dir(root.get(), kCgroupFamily));
    if (hierarchy.v2) delegate(family.get(), hierarchy);
    TRY(make_group(family.get(), instance.text));
    ScopeExit unmake([&] { ::unlinkat(family.get(), instance.text.c_str(), AT_REMOVEDIR); });
    UniqueFd own = TRY(open_dir(family.get(), instance.text));
    unmake.dismiss();
    if (hierarchy.v2) delegate(own.get(), hierarchy);
    return Tree{hierarchy, std::move(own),
                hierarchy.mount + "/" + kCgroupFamily + "/" + instance.text};
  };
  auto tree = attempt();
  if (tree) return *std::move(tree);
  problem = hierarchy.mount + ": " + tree.error().what;
  return std::nullopt;
}

std::shared_ptr<Cgroups> Cgroups::open(const InstanceId& instance, CgroupTotals totals) {
  std::shared_ptr<Cgroups> made(new Cgroups);
  Cgroups& cgroups = *made;
  auto hierarchies = find_hierarchies();
  if (!hierarchies) {
    cgroups.problem_ = hierarchies.error().what;
    return made;
  }
  for (const Hierarchy& hierarchy : *hierarchies) {
    // A v1 hierarchy is worth its cost only for a limit; v2 always, for the life-cycle.
    if (!hierarchy.v2 && !hierarchy.has("memory") && !hierarchy.has("pids") &&
        !hierarchy.has("cpu"))
      continue;
    if (hierarchy.v2 && cgroups.v2_) continue;
    auto tree = prepare(hierarchy, instance, cgroups.problem_);
    if (!tree) continue;
    cgroups.trees_.push_back(std::make_unique<Tree>(*std::move(tree)));
    const Tree* kept = cgroups.trees_.back().get();
    auto usable = [&](const char* controller) {
      return hierarchy.has(controller) &&
             (!hierarchy.v2 || is_delegated(kept->instance.get(), controller));
    };
    if (hierarchy.v2) cgroups.v2_ = cgroups.trees_.size() - 1;
    if (cgroups.memory_ == nullptr && usable("memory")) cgroups.memory_ = kept;
    if (cgroups.pids_ == nullptr && usable("pids")) cgroups.pids_ = kept;
    if (cgroups.cpu_ == nullptr && usable("cpu")) cgroups.cpu_ = kept;
  }
  // An earlier life of this instance may have left groups: names go on after theirs.
  for (const auto& tree : cgroups.trees_)
    for (const std::string& name : folders_in(tree->instance.get()))
      cgroups.last_loan_ = std::max(cgroups.last_loan_, number_of(name));
  // All sandboxes together: they may fill their share of the machine, never all of it.
  if (cgroups.memory_ != nullptr && totals.memory_bytes != 0)
    (void)write_value(cgroups.memory_->instance.get(),
                      cgroups.memory_->hierarchy.v2 ? "memory.max" : "memory.limit_in_bytes",
                      std::to_string(totals.memory_bytes));
  if (cgroups.pids_ != nullptr && totals.pids != 0)
    (void)write_value(cgroups.pids_->instance.get(), "pids.max", std::to_string(totals.pids));
  return made;
}

Result<void> Cgroups::apply(const Tree& tree, const std::string& name, const Limits& limits) const {
  int dir = tree.instance.get();
  if (&tree == memory_) {
    std::string memory = std::to_string(limits.memory_bytes);
    if (tree.hierarchy.v2) {
      TRY(write_value(dir, name + "/memory.max", memory));
      (void)write_value(dir, name + "/memory.swap.max", "0");  // Absent without swap.
    } else {
      TRY(write_value(dir, name + "/memory.limit_in_bytes", memory));
      (void)write_value(dir, name + "/memory.memsw.limit_in_bytes",
                        memory);  // Absent without accounting.
      // v1 counts the buffers of TCP apart from everything else, and does not limit them by itself.
      (void)write_value(dir, name + "/memory.kmem.tcp.limit_in_bytes",
                        std::to_string(limits.memory_bytes / 8));
    }
  }
  if (&tree == pids_)
    TRY(write_value(dir, name + "/pids.max", std::to_string(limits.pids + kGuestPids)));
  if (&tree == cpu_) {
    bool limited = limits.milli_cpus != 0;
    if (tree.hierarchy.v2) {
      TRY(write_value(dir, name + "/cpu.max",
                      (limited ? cpu_quota(limits.milli_cpus) : "max") + " 100000"));
    } else {
      TRY(write_value(dir, name + "/cpu.cfs_quota_us",
                      limited ? cpu_quota(limits.milli_cpus) : "-1"));
    }
  }
  return {};
}

namespace {

bool same_for_groups(const Limits& a, const Limits& b) {
  return a.memory_bytes == b.memory_bytes && a.pids == b.pids && a.milli_cpus == b.milli_cpus;
}

}  // namespace

Result<void> Cgroups::limit(Group& group, const Limits& limits) const {
  if (group.limits && same_for_groups(*group.limits, limits)) return {};
  if (group.used && memory_ != nullptr && !memory_->hierarchy.v2) {
    // Swap first: it may never be limited below the memory alone, on no way from one to the other.
    int dir = memory_->instance.get();
    (void)write_value(dir, group.name + "/memory.memsw.limit_in_bytes", "-1");
    (void)write_value(dir, group.name + "/memory.limit_in_bytes", "-1");
  }
  group.limits.reset();
  for (const auto& tree : trees_) TRY(apply(*tree, group.name, limits));
  group.limits = limits;
  return {};
}

bool Cgroups::is_lent(const Group& group) const {
  auto found = lent_.find(group.name);
  return found != lent_.end() && found->second == group.loan;
}

Result<Group> Cgroups::take() {
  Group group;
  {
    std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      group = std::move(spare_.back());
      spare_.pop_back();
    }
    group.loan = ++last_loan_;
    if (!group.used) group.name = name_of(group.loan);
    lent_[group.name] = group.loan;
  }
  if (group.used) return group;
  for (const auto& tree : trees_)
    if (::mkdirat(tree->instance.get(), group.name.c_str(), 0755) != 0) {
      auto failure = fail_errno("mkdir " + tree->path + "/" + group.name);
      (void)remove(group.name);
      std::lock_guard lock(mutex_);
      lent_.erase(group.name);
      return failure;
    }
  return group;
}

Result<Group> Cgroups::adopt(Group group) {
  if (number_of(group.name) == 0) return fail(Errc::invalid, "no group of ours: " + group.name);
  for (const auto& tree : trees_) TRY(open_dir(tree->instance.get(), group.name));
  std::lock_guard lock(mutex_);
  group.loan = ++last_loan_;
  lent_[group.name] = group.loan;
  worn_.insert(group.name);  // Who knows what was done to it.
  return group;
}

bool Cgroups::is_frozen(const Group& group) const {
  if (!v2_) return false;
  auto state = read_number(trees_[*v2_]->instance.get(), group.name + "/cgroup.freeze");
  return state && *state == 1;
}

Result<JoinFds> Cgroups::join_fds(const Group& group) const {
  JoinFds fds;
  UniqueFd cpu;
  for (const auto& tree : trees_) {
    int dir = tree->instance.get();
    if (tree->hierarchy.v2) {
      fds.v2 = TRY(open_dir(dir, group.name));
      continue;
    }
    // Not cgroup.procs: a thread that moves only itself needs no lock on all of the machine's
    // processes, and no grace period. The child has one thread.
    UniqueFd tasks(::openat(dir, (group.name + "/tasks").c_str(), O_WRONLY | O_CLOEXEC));
    if (!tasks) return fail_errno("open tasks");
    bool only_cpu = tree.get() == cpu_ && cpu_ != memory_ && cpu_ != pids_;
    (only_cpu ? cpu : fds.v1_tasks.emplace_back()) = std::move(tasks);
  }
  fds.cpu_is_last = static_cast<bool>(cpu);
  if (cpu) fds.v1_tasks.push_back(std::move(cpu));
  return fds;
}

Result<bool> Cgroups::is_empty(const std::string& name) const {
  // Whoever is in one hierarchy's group is in all of them.
  if (v2_)
    return TRY(read_keyed(trees_[*v2_]->instance.get(), name + "/cgroup.events", "populated")) == 0;
  for (const auto& tree : trees_) {
    std::string tasks = TRY(read_small_file(tree->instance.get(), name + "/tasks"));
    if (!tasks.empty()) return false;
  }
  return true;
}

bool Cgroups::can_be_used_again(const std::string& name) const {
  // The peak of a v2 group cannot be set back.
  if (memory_ != nullptr && memory_->hierarchy.v2) return false;
  return !closed_ && !worn_.contains(name) && spare_.size() < kMostSpare;
}

std::optional<Group> Cgroups::made_as_new(const Group& used) const {
  if (memory_ != nullptr) {
    int dir = memory_->instance.get();
    // What it was the first to touch of the environment's files stays charged to it, up to a
    // little.
    auto left = read_number(dir, used.name + "/memory.usage_in_bytes");
    if (left && *left > kMostLeft) {
      (void)write_value(dir, used.name + "/memory.force_empty", "0");
      left = read_number(dir, used.name + "/memory.usage_in_bytes");
    }
    // Saved memory of its interpreters, which others go on from: it must not be the next one's.
    if (!left || *left > kMostLeft) return std::nullopt;
    (void)write_value(dir, used.name + "/memory.max_usage_in_bytes", "0");
  }
  Group group;
  group.name = used.name;
  group.used = true;
  group.limits = used.limits;
  measure_time_and_io(group, group.used_before);
  group.oom_kills_before = all_oom_kills(group.name);
  return group;
}

Result<void> Cgroups::give_back(const Group& group) {
  auto empty = is_empty(group.name);
  if (empty && !*empty) return fail(Errc::conflict, "a process is left in " + group.name);
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    if (!is_lent(group)) return {};  // Given back before.
    lent_.erase(group.name);
    again = empty && can_be_used_again(group.name);
  }
  if (again) {
    std::optional<Group> fresh = made_as_new(group);
    std::lock_guard lock(mutex_);
    if (fresh && !closed_) {
      spare_.push_back(std::move(*fresh));
      return {};
    }
  }
  auto removed = remove(group.name);
  std::lock_guard lock(mutex_);
  if (removed)
    worn_.erase(group.name);
  else
    lent_[group.name] = group.loan;  // To be tried again.
  return removed;
}

Result<void> Cgroups::remove(const std::string& name) const {
  for (const auto& tree : trees_) {
    int dir = tree->instance.get();
    if (tree.get() == memory_ && !tree->hierarchy.v2) {
      // Pages it was the first to touch would keep the group as an invisible zombie.
      auto left = read_number(dir, name + "/memory.usage_in_bytes");
      if (left && *left > 0) (void)write_value(dir, name + "/memory.force_empty", "0");
    }
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      return fail_errno("rmdir " + tree->path + "/" + name);
  }
  return {};
}

void Cgroups::close() noexcept {
  std::vector<Group> unused;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    unused.swap(spare_);
  }
  for (const Group& group : unused) (void)remove(group.name);
  for (const auto& tree : trees_) ::rmdir(tree->path.c_str());
}

Result<void> Cgroups::freeze(const Group& group, bool frozen) {
  if (!v2_)
    return fail(Errc::unsupported, "pausing needs a cgroup v2 tree",
                "see agent-sandbox doctor for how to mount one");
  const Tree& tree = *trees_[*v2_];
  {
    std::lock_guard lock(mutex_);
    if (!is_lent(group)) return fail(Errc::gone, "the sandbox has ended", "create a new one");
    if (frozen) worn_.insert(group.name);  // It may end as it stands.
    TRY(write_value(tree.instance.get(), group.name + "/cgroup.freeze", frozen ? "1" : "0"));
  }
  // The kernel takes its time: what is paused must stand still when we say so.
  for (int round = 0; frozen && round < 2000; ++round) {
    auto state = read_keyed(tree.instance.get(), group.name + "/cgroup.events", "frozen");
    if (!state || *state == 1) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

void Cgroups::hasten_end(const Group& group) noexcept {
  std::lock_guard lock(mutex_);
  if (!is_lent(group)) return;
  worn_.insert(group.name);
  auto write = [&](const Tree& tree, const char* file, const char* value) {
    (void)write_value(tree.instance.get(), group.name + "/" + file, value);
  };
  if (v2_) write(*trees_[*v2_], "cgroup.kill", "1");
  if (cpu_ == nullptr) return;
  if (cpu_->hierarchy.v2) {
    write(*cpu_, "cpu.max", "max");
    write(*cpu_, "cpu.weight", "10000");
  } else {
    write(*cpu_, "cpu.cfs_quota_us", "-1");
    write(*cpu_, "cpu.shares", "262144");
  }
}

std::uint64_t Cgroups::all_oom_kills(const std::string& name) const {
  if (memory_ == nullptr) return 0;
  auto count = memory_->hierarchy.v2
                   ? read_keyed(memory_->instance.get(), name + "/memory.events", "oom_kill")
                   : read_keyed(memory_->instance.get(), name + "/memory.oom_control", "oom_kill");
  return count ? *count : 0;
}

std::uint64_t Cgroups::oom_kills(const Group& group) const {
  std::uint64_t count = all_oom_kills(group.name);
  std::lock_guard lock(mutex_);
  return is_lent(group) && count > group.oom_kills_before ? count - group.oom_kills_before : 0;
}

namespace {

// v1 "8:0 Read 4096" and v2 "8:0 rbytes=4096 wbytes=0 …", summed over devices.
std::uint64_t sum_io(const std::string& text, std::string_view v1_word, std::string_view v2_key) {
  std::uint64_t sum = 0;
  for (std::string_view key : {v1_word, v2_key}) {
    std::size_t at = 0;
    while ((at = text.find(key, at)) != std::string::npos) {
      at += key.size();
      std::uint64_t value = 0;
      std::from_chars(text.data() + at, text.data() + text.size(), value);
      sum += value;
    }
  }
  return sum;
}

}  // namespace

Cgroups::Peak Cgroups::peak_kind() const noexcept {
  if (memory_ == nullptr) return Peak::none;
  return memory_->hierarchy.v2 ? Peak::own : Peak::shared;
}

Result<UniqueFd> Cgroups::open_peak(const Group& group) const {
  std::string path =
      group.name + (memory_->hierarchy.v2 ? "/memory.peak" : "/memory.max_usage_in_bytes");
  int dir = memory_->instance.get();
  UniqueFd fd(::openat(dir, path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) fd = UniqueFd(::openat(dir, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  return fd;
}

void Cgroups::measure(const Group& group, Usage& usage) const {
  auto number = [&](const Tree* tree, const char* v1, const char* v2) -> std::uint64_t {
    if (tree == nullptr) return 0;
    auto value =
        read_number(tree->instance.get(), group.name + "/" + (tree->hierarchy.v2 ? v2 : v1));
    return value ? *value : 0;
  };
  usage.memory_bytes = number(memory_, "memory.usage_in_bytes", "memory.current");
  usage.memory_peak_bytes = number(memory_, "memory.max_usage_in_bytes", "memory.peak");
  usage.memory_peak_bytes = std::max(usage.memory_peak_bytes, usage.memory_bytes);
  usage.pids = static_cast<std::uint32_t>(number(pids_, "pids.current", "pids.current"));
  usage.oom_kills = oom_kills(group);
  measure_time_and_io(group, usage);
  std::lock_guard lock(mutex_);
  if (!is_lent(group)) usage = Usage();  // It was another's, perhaps.
}

void Cgroups::measure_time_and_io(const Group& group, Usage& usage) const {
  // Every v2 group counts cpu time, controllers or not.
  if (v2_) {
    auto micros = read_keyed(trees_[*v2_]->instance.get(), group.name + "/cpu.stat", "usage_usec");
    if (micros) usage.cpu = std::chrono::microseconds(*micros) - group.used_before.cpu;
    if (auto io = read_small_file(trees_[*v2_]->instance.get(), group.name + "/io.stat")) {
      usage.io_read_bytes = sum_io(*io, "\x01", "rbytes=") - group.used_before.io_read_bytes;
      usage.io_write_bytes = sum_io(*io, "\x01", "wbytes=") - group.used_before.io_write_bytes;
    }
  }
}

std::vector<IsolationFact> Cgroups::facts() const {
  const std::string hint = (problem_.empty() ? "" : " (" + problem_ + ")") +
                           "; run as root, or have systemd delegate one (Delegate=yes)";
  auto fact = [&](const char* name, const Tree* tree, const char* controller) {
    IsolationFact result{name, Guarantee::full, "", ""};
    if (tree != nullptr) {
      result.mechanism = std::string(tree->hierarchy.v2 ? "cgroup v2 " : "cgroup v1 ") + controller;
      return result;
    }
    result.guarantee = Guarantee::none;
    result.note = std::string("no ") + controller + " cgroup can be used" + hint;
    return result;
  };
  std::vector<IsolationFact> facts{fact("memory_limit", memory_, "memory"),
                                   fact("cpu_limit", cpu_, "cpu"),
                                   fact("pids_limit", pids_, "pids")};
  IsolationFact pause{"pause", v2_ ? Guarantee::full : Guarantee::none,
                      v2_ ? "cgroup v2 freezer" : "",
                      v2_ ? "" : "no cgroup v2 tree can be used" + hint};
  facts.push_back(pause);
  return facts;
}

}  // namespace asr
