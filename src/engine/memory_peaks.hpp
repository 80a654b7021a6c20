// The most memory that a sandbox had while something ran. Where the kernel keeps one peak for
// everybody (cgroup v1) it is set back for each that wants to know, and told to those who watched
// before.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "engine/cgroups.hpp"

namespace asr {

class MemoryPeaks : public std::enable_shared_from_this<MemoryPeaks> {
 public:
  MemoryPeaks(std::shared_ptr<Cgroups> cgroups, Group group)
      : cgroups_(std::move(cgroups)), group_(std::move(group)) {}

  class Watch {
   public:
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    // Since it began; nothing where that cannot be told.
    std::optional<std::uint64_t> peak();

   private:
    friend class MemoryPeaks;
    explicit Watch(std::shared_ptr<MemoryPeaks> peaks) : peaks_(std::move(peaks)) {}
    std::shared_ptr<MemoryPeaks> peaks_;
    UniqueFd own_;              // v2: a reader whose peak begins with the watch
    bool own_begins_ = false;   // it does
    std::uint64_t before_ = 0;  // otherwise: the peak until then
    std::uint64_t most_ = 0;
  };
  // Nothing where no group counts memory.
  std::unique_ptr<Watch> watch();

  // The highest that was ever seen: the kernel's own was set back, perhaps.
  std::uint64_t highest() const;

 private:
  std::uint64_t look();  // with mutex_ held: what everybody shares

  std::shared_ptr<Cgroups> cgroups_;
  Group group_;
  mutable std::mutex mutex_;  // for what follows
  UniqueFd shared_;
  std::list<Watch*> watches_;
  std::uint64_t highest_ = 0;
};

}  // namespace asr
