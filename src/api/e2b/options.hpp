// How this server looks to E2B's clients.
#pragma once

#include <chrono>
#include <cstdint>

#include "policy/spec.hpp"

namespace asr {

struct E2bOptions {
  bool enabled = true;
  bool internet = true;  // unless a sandbox asks for none: public hosts, through the proxy
  std::uint32_t milli_cpus = 2000;
  std::uint64_t memory_bytes = 1ULL << 30;
  std::uint64_t disk_bytes = 512ULL << 20;
  std::chrono::seconds most_time{24 * 3600};  // that may be asked for
};

// What every sandbox of a built-in template is made with: one pool serves them all.
SandboxSpec e2b_spec(const E2bOptions& options);

}  // namespace asr
