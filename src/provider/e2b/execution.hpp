// Programs in a remote sandbox.
#pragma once

#include <memory>

#include "policy/limits.hpp"
#include "provider/e2b/core.hpp"

namespace asr::e2b {

// `limits`: where the command does not say.
// What becomes of a program whose start is not confirmed, though it may have begun.
enum class Unconfirmed { is_ended, ends_by_itself };
asio::awaitable<Result<std::unique_ptr<Execution>>> start_program(
    CorePtr core, Command command, Limits limits, Unconfirmed lost = Unconfirmed::is_ended);

// One that an earlier server started and kept. What it wrote meanwhile is lost.
std::unique_ptr<Execution> take_up_program(CorePtr core, RemoteProcess process, std::string label);

// To a process and all that descend from it.
asio::awaitable<Result<void>> signal_tree(CorePtr core, std::int32_t pid, int number);

}  // namespace asr::e2b
