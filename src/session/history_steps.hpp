// How what happens in a session looks in its history. Outputs and results are bounded here; secrets
// are not taken: of variables the names, of input how long it was.
#pragma once

#include <string>
#include <vector>

#include "net/json.hpp"
#include "session/command.hpp"
#include "session/content_hash.hpp"
#include "session/request.hpp"

namespace asr {

inline constexpr std::size_t kMostStepOutput = 64 << 10;    // of each stream: its end
inline constexpr std::size_t kMostStepResults = 256 << 10;  // of all results of a cell

// `described`: the command as the API tells it, without its output.
json::object command_step(const SessionCommand& command, const json::object& described);

// What the answer of a cell does not say.
struct CellFacts {
  std::string code;
  std::vector<std::string> env;  // names
  json::array files;             // that it came with
  std::optional<std::chrono::milliseconds> timeout;
  std::shared_ptr<std::size_t> questions;  // of input(); none: nobody could have answered
  std::int64_t ended_us = 0;
  bool wanted = true;  // with code and output
};
CellFacts facts_of(const CellRequest& request);
// `answer`: as the API tells it.
json::object cell_step(CellFacts facts, const json::object& answer);

// Something that took no time worth telling: a file written, a context made.
json::object small_step(std::string_view kind, std::string_view operation);
json::object context_step(std::string_view operation, const std::string& context);
json::object signal_step(const std::string& command, int signal);
// Everything was saved, or became what had been saved. `name`: of the checkpoint; may be empty.
json::object state_step(std::string_view operation, const std::string& name);

json::array about_files(const std::vector<InitialFile>& files);
json::array names_of(const std::map<std::string, std::string>& variables);

}  // namespace asr
