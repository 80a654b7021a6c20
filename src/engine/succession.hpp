// How an engine with a fixed name takes the place of the last one that had it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine.hpp"
#include "engine/instance.hpp"
#include "engine/native_sandbox.hpp"

namespace asr {

// A sandbox that was kept, lives, and can be taken up.
struct Legacy {
  SandboxRecord record;
  UniqueFd socket;
  UniqueFd pidfd;
  UniqueFd id_lock;
  std::vector<UniqueFd> storage;
  std::vector<NativeSandbox::KeptExecution> executions;
};

struct Succession {
  Instance instance;
  UniqueFd keeper;  // Connected. Absent: there is none, and nothing to take over.
  std::uint32_t epoch = 1;
  std::vector<Legacy> living;
  std::vector<std::string> forgotten;  // what the keeper need not hold any more
};

// Becomes the instance, asks its keeper for everything, and removes what the last engine left and
// had not kept. What it found goes into the report.
Result<Succession> succeed(const EngineOptions& options, RecoveryReport& report);

}  // namespace asr
