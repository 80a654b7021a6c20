// An interpreter that has said it is ready.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>

#include "engine/sandbox.hpp"
#include "interpreter/kernel_events.hpp"
#include "interpreter/language.hpp"

namespace asr {

struct KernelProcess {
  std::shared_ptr<Execution> process;
  KernelEvents events;  // what it has said since
  std::string version;
  std::shared_ptr<const FrozenProgram> frozen;  // what it was made from; none: it was started
};

struct KernelStart {
  LanguagePtr language;
  std::map<std::string, std::string> env;
  std::string cwd;                              // Empty: /workspace
  std::shared_ptr<const FrozenProgram> frozen;  // none: started from its file
};

// An image that does not come to life is no reason to have no interpreter: then one is started.
// Errc::unsupported if the environment has no such program.
asio::awaitable<Result<KernelProcess>> start_kernel(std::shared_ptr<Sandbox> sandbox,
                                                    KernelStart how);

// Only from its image, in two steps: first there is a process, which can be kept, then it is ready.
// Errc::unsupported if the image does not come to life there.
asio::awaitable<Result<KernelProcess>> begin_thaw(std::shared_ptr<Sandbox> sandbox,
                                                  KernelStart how);
asio::awaitable<Result<KernelProcess>> finish_thaw(KernelProcess begun,
                                                   std::shared_ptr<Sandbox> sandbox,
                                                   KernelStart how);

// Ends whoever says nothing until the timer is over, unless the timer is ended first.
void end_when_late(asio::steady_timer& patience, std::shared_ptr<Execution> process);

}  // namespace asr
