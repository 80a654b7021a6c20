// An interpreter that lives, saved as it stands: others go on from there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"
#include "interpreter/kernel_events.hpp"

namespace asr {

struct SavedKernel {
  std::shared_ptr<const FrozenProgram> program;
  std::uint64_t bytes = 0;  // that were written for it
  // What those that go on from it do not have.
  std::uint64_t threads = 0;
  std::vector<std::string> files;
  bool event_loop = false;
};

// Whoever has the interpreter to himself, and what it has said.
struct KernelTalk {
  std::shared_ptr<Execution> process;
  KernelEvents events;
  // What it was made from; none: it was started, or nobody knows.
  std::shared_ptr<const FrozenProgram> frozen;
};

// `number`: of a request that it has not seen yet. The interpreter goes on either way;
// Errc::unsupported says why it cannot be saved. One that does not answer for a minute is ended.
asio::awaitable<Result<SavedKernel>> save_kernel(std::shared_ptr<KernelTalk> talk,
                                                 std::uint64_t number);

}  // namespace asr
