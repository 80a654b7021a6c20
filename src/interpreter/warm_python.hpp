// A Python that was started once and has done its imports, as an image from which others are made.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"

namespace asr {

struct WarmPython {
  std::shared_ptr<const FrozenProgram> program;
  std::uint64_t bytes = 0;
  std::string complaints;  // about what could not be imported
};

// Runs it in this sandbox, which has served its purpose then. The image comes from inside: whoever
// made the environment decides what is in it, and nobody outside a sandbox may look.
// Errc::unsupported where there is no Python, or none of a kind that can be frozen.
asio::awaitable<Result<WarmPython>> freeze_python(std::shared_ptr<Sandbox> sandbox,
                                                  std::vector<std::string> imports);

// Whether an interpreter with these variables may come from an image: some are only looked at when
// a process starts.
bool may_be_thawed(const std::map<std::string, std::string>& env);

}  // namespace asr
