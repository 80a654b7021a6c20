// What the server says about saved states, as tables, and as warnings about what is not in them.
#pragma once

#include <string>
#include <vector>

#include "cli/branch_tree.hpp"
#include "net/json.hpp"

namespace asr {

// `at`: the number of the one where the session is now, as the server tells it, or null.
std::string checkpoint_table(const json::array& checkpoints, const json::value& at,
                             Letters letters);
std::string merged_table(const json::value& report);
std::string conflict_table(const json::value& report);
std::string snapshot_table(const json::array& snapshots);

// A sentence for everything that does not come along.
std::vector<std::string> losses_of(const json::value& state);

}  // namespace asr
