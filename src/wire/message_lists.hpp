// Every message there is, for tests that must leave none out.
#pragma once

#include <tuple>

#include "wire/guest_messages.hpp"
#include "wire/keeper_messages.hpp"
#include "wire/zygote_messages.hpp"

namespace asr::wire {

using GuestMessages =
    std::tuple<Hello, LaunchFailed, Done, Failure, Started, Ended, Opened, Info, Page, Events,
               Processes, ArchiveDone, Disk, Executions, Accepted, ChangeList, Measured, Start,
               SignalExecution, SignalProcess, Resize, KillAll, Ping, File, Connect, ListProcesses,
               DiskUsage, StopWork, SkipTime, KnownExecutions, AcceptMore, TakeStock, TellEffects>;

using ZygoteMessages = std::tuple<Configure, Create, Configured, Launched, LaunchRefused, Reaped>;

using KeeperMessages = std::tuple<TakeAll, Keep, Forget, Quit, Kept, Taken, Stored, NotStored>;

// Calls `use` with a default-made value of each.
template <class Messages, class Use>
void for_each_message(Use use) {
  std::apply([&](auto... message) { (use(message), ...); }, Messages());
}

}  // namespace asr::wire
