// An interpreter of a session as it was: what another one can go on from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/command.hpp"
#include "net/json.hpp"

namespace asr {

struct SavedContext {
  std::string id;
  std::string language;
  std::string cwd;  // where its next interpreter would start
  std::map<std::string, std::string> env;
  std::string version;
  std::uint64_t count = 0;  // of cells it had run
  bool had_one = false;     // There was an interpreter.

  // Its memory. None: there was none, or it could not be saved, and this is why.
  std::shared_ptr<const FrozenProgram> program;
  std::string why_not;
  std::uint64_t bytes = 0;  // that were written for it
  // What does not come along.
  std::uint64_t threads = 0;
  std::vector<std::string> files;
  bool event_loop = false;

  bool has_memory() const noexcept { return program != nullptr; }
  bool loses_memory() const noexcept { return had_one && !program; }
};

// As the API tells it: what comes along, and what does not.
json::object json_of(const SavedContext& context);

}  // namespace asr
