// Host uid ranges for sandboxes: 65536 ids each, never shared by two that live, on the whole
// machine.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// Ranges come in blocks. An instance claims a block by locking a file that all instances of the
// machine share; the lock ends with the process, however it ends.
class IdRanges {
 public:
  // One place for all instances, whatever their runtime folder: the ids are the machine's.
  explicit IdRanges(std::filesystem::path locks = "/run/agent-sandbox/ids")
      : locks_(std::move(locks)) {}

  Result<std::uint32_t> take();  // The first id of a range.
  void give_back(std::uint32_t first_id);

  // The lock of the block a range is in, for somebody to hold while the range is used without us.
  UniqueFd copy_lock(std::uint32_t first_id);
  // A range that is in use, with its block's lock as an earlier process held it.
  Result<void> adopt(std::uint32_t first_id, UniqueFd lock);

  // Above what systemd gives to containers and below the ids that mean "none".
  static constexpr std::uint32_t kFirst = 0x70000000;
  static constexpr std::uint32_t kRangeSize = 65536;
  static constexpr std::uint32_t kRangesPerBlock = 128;
  static constexpr std::uint32_t kBlocks = (0xfffe0000 - kFirst) / kRangeSize / kRangesPerBlock;

 private:
  Result<void> claim_block();
  void claim(std::uint32_t block, UniqueFd lock);

  std::filesystem::path locks_;
  std::mutex mutex_;
  std::map<std::uint32_t, UniqueFd> claimed_;  // by block: its lock
  std::deque<std::uint32_t>
      free_;  // Oldest first: an id rests as long as it can before it is used again.
};

}  // namespace asr
