#include "engine/id_ranges.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace asr {

Result<std::uint32_t> IdRanges::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) TRY(claim_block());
  std::uint32_t first = free_.front();
  free_.pop_front();
  return first;
}

void IdRanges::give_back(std::uint32_t first_id) {
  std::lock_guard lock(mutex_);
  free_.push_back(first_id);
}

namespace {

std::uint32_t block_of(std::uint32_t first_id) {
  return (first_id - IdRanges::kFirst) / IdRanges::kRangeSize / IdRanges::kRangesPerBlock;
}

}  // namespace

UniqueFd IdRanges::copy_lock(std::uint32_t first_id) {
  std::lock_guard lock(mutex_);
  auto found = claimed_.find(block_of(first_id));
  if (found == claimed_.end()) return UniqueFd();
  return UniqueFd(::fcntl(found->second.get(), F_DUPFD_CLOEXEC, 3));
}

Result<void> IdRanges::adopt(std::uint32_t first_id, UniqueFd lock) {
  std::uint32_t block = block_of(first_id);
  if (first_id < kFirst || first_id % kRangeSize != 0 || block >= kBlocks || !lock)
    return fail(Errc::invalid, "no such uid range");
  std::lock_guard guard(mutex_);
  // Copies of one description: the first will do.
  if (!claimed_.contains(block)) claim(block, std::move(lock));
  if (std::erase(free_, first_id) == 0) return fail(Errc::conflict, "the uid range is in use");
  return {};
}

void IdRanges::claim(std::uint32_t block, UniqueFd lock) {
  claimed_.emplace(block, std::move(lock));
  for (std::uint32_t i = 0; i < kRangesPerBlock; ++i)
    free_.push_back(kFirst + (block * kRangesPerBlock + i) * kRangeSize);
}

Result<void> IdRanges::claim_block() {
  for (const std::filesystem::path& folder : {locks_.parent_path(), locks_})
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      return fail_errno("mkdir " + folder.native());
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    std::string path = (locks_ / std::to_string(block)).native();
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return fail_errno("open " + path);
    // A description of our own: a second claim by this very process conflicts, too.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    claim(block, std::move(fd));
    return {};
  }
  return fail(Errc::exhausted, "all uid ranges of this machine are in use",
              "end some sandboxes; there is room for " + std::to_string(kBlocks * kRangesPerBlock));
}

}  // namespace asr
