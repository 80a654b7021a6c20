// What a cell gave, shown to people: results as text, errors with their traceback, and the pictures
// and files it made, fetched to files here. All of it comes from inside a sandbox.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "cli/remote.hpp"

namespace asr {

// The text of a result; empty if it has none.
std::string result_text(const json::object& result);

// The traceback on stderr, without anything that could speak to a terminal.
void print_traceback(const json::value& error);
// All of an answer that came at once.
void print_answer(const json::value& answer);

// What a program that ended like this cell would exit with: its own code where it has given one,
// 130 for an interrupt, 137 for a limit, 1 for any other error.
int exit_code_of(const json::value& answer);
// Whether the program wanted to end, and did not just fail.
bool has_exited(const json::value& answer);

// What to do where a file of that name is there already. Nothing is ever overwritten.
enum class IfTaken { refuse, number };

// Brings what a cell made to `folder`, which is made for it; gives the file's name. `go_on` may be
// empty; false gives up.
Result<std::filesystem::path> fetch_artifact(Remote& remote, const std::string& session,
                                             const json::value& artifact,
                                             const std::filesystem::path& folder, IfTaken taken,
                                             std::function<bool()> go_on = {});

// A name for a file that cannot leave its folder, hide or speak to a terminal.
std::string file_name_for(const std::string& name, const std::string& otherwise);

}  // namespace asr
