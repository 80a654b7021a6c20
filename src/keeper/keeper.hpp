// A store of descriptors with names that outlives the daemon, and nothing else: as long as it holds
// a copy, a sandbox's socket stays open and the sandbox lives. It never reads from what it holds.
//
// One daemon at a time; a next one is heard when the last has gone. It ends when it is told to,
// when it holds nothing and nobody comes, or when no daemon has come for as long as the last one
// said.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "wire/frame.hpp"

namespace asr {

class Keeper {
 public:
  // `listener` is a listening seqpacket socket. `lock` says on the file system that this instance
  // lives; every daemon gets a copy.
  Keeper(UniqueFd listener, UniqueFd lock);

  // Returns when it has to end. Tests are less patient than the real one.
  int serve(std::chrono::milliseconds empty_for = std::chrono::seconds(60));

 private:
  using Clock = std::chrono::steady_clock;
  struct Thing {
    std::string blob;
    std::vector<UniqueFd> fds;
  };

  void welcome();
  bool answer(const Frame& frame, std::vector<UniqueFd> fds, bool lost_descriptors);
  Result<void> hand_out(std::uint32_t id);
  void forget(const std::string& name);
  bool time_is_up(std::chrono::milliseconds empty_for) const;

  UniqueFd listener_;
  UniqueFd lock_;
  UniqueFd daemon_;
  Clock::time_point alone_since_ = Clock::now();
  std::chrono::milliseconds patience_{std::chrono::minutes(10)};
  std::uint32_t epoch_ = 0;
  std::map<std::string, Thing> things_;
  std::vector<char> buffer_;
};

// The process's whole life: gives up every privilege, then serves.
int run_keeper(int listener, int lock);

}  // namespace asr
