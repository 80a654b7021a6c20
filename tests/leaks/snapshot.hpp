// Counts of everything an engine could leave behind, taken before and after, and what differs.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace asr::test {

// Marks this process and all that will ever descend from it, so that others of this machine are not
// counted: the limit on file locks means nothing to the kernel any more, and nobody changes it.
void mark_descendants();

// Processes with our mark, but for this one.
std::set<int> marked_processes();

struct Scope {
  std::filesystem::path runtime_dir;
  std::filesystem::path cache_dir;
  std::set<std::string>
      instances;  // Whose cgroups are counted; those found in runtime_dir are added.
};

using Counts = std::map<std::string, long>;

// What a kill may leave and a recovery must remove.
Counts count_remains(Scope& scope);

// The same and what this very process holds: descriptors, threads, memory.
Counts count_all(Scope& scope);

// One line per count that grew by more than its tolerance; empty when nothing did.
std::string growth(const Counts& before, const Counts& after, const Counts& tolerances = {});

// Counts again until nothing has grown or the time is over; the last growth().
template <class Count>
std::string settle(const Counts& before, Count count, const Counts& tolerances,
                   std::chrono::milliseconds most);

}  // namespace asr::test

#include <thread>

template <class Count>
std::string asr::test::settle(const Counts& before, Count count, const Counts& tolerances,
                              std::chrono::milliseconds most) {
  auto until = std::chrono::steady_clock::now() + most;
  for (;;) {
    std::string grown = growth(before, count(), tolerances);
    if (grown.empty() || std::chrono::steady_clock::now() >= until) return grown;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
