// What really holds for one sandbox. A guarantee that this machine cannot give is named, never
// dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace asr {

enum class Guarantee {
  full,     // the kernel enforces it
  partial,  // enforced, with a gap that `note` names
  none,     // not enforced on this machine
};

struct IsolationFact {
  std::string name;  // "memory_limit", "uid_range", …: stable, for programs
  Guarantee guarantee = Guarantee::full;
  std::string mechanism;  // "cgroup v1 memory", "seccomp", …
  std::string note;       // Why it is less than full, and how to get more. Empty when full.

  friend bool operator==(const IsolationFact&, const IsolationFact&) = default;
};

struct Isolation {
  std::vector<IsolationFact> facts;

  const IsolationFact* find(std::string_view name) const noexcept {
    for (const IsolationFact& fact : facts)
      if (fact.name == name) return &fact;
    return nullptr;
  }
};

inline std::string_view to_string(Guarantee guarantee) noexcept {
  switch (guarantee) {
    case Guarantee::full:
      return "full";
    case Guarantee::partial:
      return "partial";
    case Guarantee::none:
      return "none";
  }
  return "none";
}

}  // namespace asr
