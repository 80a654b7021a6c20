// One sandbox made, used and removed, to see whether and how well it works here.
#pragma once

#include <chrono>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "os/features.hpp"
#include "policy/isolation.hpp"

namespace asr {

struct Trial {
  std::chrono::nanoseconds start{0};  // of the engine and of the first zygote
  std::chrono::nanoseconds create{0};
  std::chrono::nanoseconds run{0};
  std::chrono::nanoseconds destroy{0};
  Isolation isolation;
};

// As whoever calls.
Result<Trial> try_sandbox(EngineOptions options = {});

// As an ordinary user, in a child process. Only root can.
Result<Trial> try_sandbox_rootless();

// What root would most likely get, judged by what an ordinary user can see.
Isolation expected_as_root(const Isolation& rootless, const KernelFeatures& kernel);

// A guarantee that a sandbox on a better machine would have.
bool is_missing(const IsolationFact& fact);

}  // namespace asr
