// What a run of the catalogue found: one record per case, kept as attacks.json and printed as a
// table.
#pragma once

#include <string>
#include <vector>

namespace asr::escape {

// One line of the probe's output.
struct Attempt {
  std::string what;
  std::string kind;  // "attack", "needed" or "note"
  bool succeeded = false;
  std::string err;
  std::string detail;
  std::string unprovable;  // Why it need not succeed outside.
  std::string as;          // "outside", "root", "user"
};

std::vector<Attempt> parse_attempts(const std::string& output, const std::string& as,
                                    std::string& no_box);

enum class Outcome { held, breached, not_applicable, not_provable };
std::string_view to_string(Outcome outcome) noexcept;

struct Record {
  std::string name;
  std::string title;
  Outcome outcome = Outcome::held;
  bool outside_succeeded = false;
  std::size_t attempts = 0;  // made inside
  std::size_t proven = 0;    // attacks that worked outside
  double seconds = 0;
  std::string reason;
  std::vector<std::string> unproven;  // attacks that did not work outside either, with the reason
};

// Keeps the record beside those of other runs, which may be other processes at the same time, and
// writes attacks.json anew: to $ASR_ATTACKS_JSON, or in the working directory.
void keep(const Record& record);

// The table of what this process has kept.
std::string table();

}  // namespace asr::escape
