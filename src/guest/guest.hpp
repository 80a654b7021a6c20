// Pid 1 of a sandbox: starts programs, works on files, connects to ports, on one socket to the
// daemon.
//
// It is forked from the zygote, holds no host path and no host descriptor, and ends when nobody
// outside holds its socket any more, taking everything in the sandbox with it. What takes time or
// touches the workload's files is done by a forked worker with the workload's own rights, which
// answers the daemon itself.
#pragma once

#include <cstdint>

#include "guest/scratch.hpp"
#include "launch/plan.hpp"
#include "policy/spec.hpp"

namespace asr {

struct GuestConfig {
  int socket = -1;
  int inner_userns = -1;
  int refusals = -1;  // Calls that the gate refuses wait there for their answer; -1: none does.
  int own_io = -1;    // what we, and those that we have reaped, have read and written
  SyscallTier tier = SyscallTier::strict;
  std::uint64_t gate_secret = 0;
  bool rootless = false;
  std::uint64_t watched_memory_bytes = 0;  // 0: a cgroup does it.
  bool disk = false;                       // What is written lies on one, not in memory.
  std::uint16_t proxy_port = 0;            // 0: there is no proxy.
  Scratch scratch;                         // Where what is written lies.
};

[[noreturn]] void run_guest(GuestConfig config, const LaunchPlan& plan, LaunchOutcome outcome);

}  // namespace asr
