// What there is in the sandbox at one moment, and what happened since: files, processes, bytes,
// connections, refused calls. Pid 1 takes stock itself, right before a program begins and right
// after it ends, so it looks at no more than is done in no time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "guest/changes.hpp"
#include "guest/refusals.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// Attempts to reach something, by the kernel's own counts of this network namespace.
struct Connections {
  std::uint64_t attempted = 0;
  std::uint64_t refused = 0;
};

// What one process has used; with those of its children that it has waited for.
struct ProcessUse {
  std::uint64_t written_bytes = 0;
  std::chrono::microseconds cpu{0};
};

struct Stock {
  std::vector<wire::FileChange> files;  // from the beginning of the sandbox, by path
  bool files_known = false;
  bool files_complete = true;  // These are all.
  bool files_cut = false;      // There were more to look at: what is not listed may be there.
  std::optional<std::uint64_t> processes;  // that were ever started
  std::uint64_t rounds = 0;                // how often their numbers had begun anew
  std::optional<Connections> connections;
  std::optional<ProcessUse> used;
  std::optional<CallCounts> refused_calls;
};

class Stocktaker {
 public:
  // `own_io`: /proc/self/io, where it cannot be opened any more.
  Stocktaker(const Scratch& scratch, const RefusalListener& refusals, UniqueFd own_io = {});

  // `process`: of one that runs, what it has used so far; 0: of none.
  Stock take(std::int32_t process = 0);
  // What happened since then. `used`: by whoever it is about, in all.
  wire::Measured since(const Stock& before, const std::optional<ProcessUse>& used);

  // Of one that runs.
  static std::optional<ProcessUse> use_of(std::int32_t process);
  // By ourselves and all that we have reaped: how much it grows is what the reaped one has written.
  // Its own count is not for us to read any more once it has ended.
  std::optional<std::uint64_t> written_by_reaped();

  // A process of ours, which is nobody's doing.
  void started_own() noexcept {
    if (last_pid_) ++own_;  // Those before the first count are in none.
  }
  // Often enough that process numbers do not run around meanwhile.
  void count_processes();

 private:
  // A file of /proc that is read again and again.
  struct Source {
    const char* path;
    UniqueFd fd = {};
  };
  std::string_view read(Source& source);
  std::optional<Connections> connections();
  void take_files(Stock& stock);

  const Scratch& scratch_;
  const RefusalListener& refusals_;
  ChangeWalk walk_;
  Source processes_;
  Source ipv4_;
  Source ipv6_;
  Source own_io_;
  std::array<char, 8192> text_;
  std::optional<std::uint64_t> last_pid_;
  std::uint64_t rounds_ = 0;
  std::uint64_t started_ = 0;  // since the numbers were first counted, or began anew
  std::uint64_t own_ = 0;      // of these
};

// One value of a table such as /proc/net/snmp: a line with the group's names, a line with values.
std::optional<std::uint64_t> counter_in(std::string_view table, std::string_view group,
                                        std::string_view name);
// One of "name value" lines.
std::optional<std::uint64_t> value_in(std::string_view lines, std::string_view name);

}  // namespace asr
