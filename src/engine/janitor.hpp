// Removes what ended sandboxes leave behind, one after the other, on a thread of its own.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/cgroups.hpp"
#include "engine/full_network.hpp"
#include "engine/id_ranges.hpp"
#include "engine/native_sandbox.hpp"

namespace asr {

class Janitor {
 public:
  Janitor(std::shared_ptr<Cgroups> cgroups, std::shared_ptr<IdRanges> ids,
          std::shared_ptr<FullNetwork> network);
  ~Janitor();  // Finishes what is queued.

  void bury(Remains remains);  // From any thread.
  void finish();               // Waits until nothing is queued.
  std::size_t backlog() const noexcept { return backlog_.load(); }
  std::size_t leaked() const noexcept { return leaked_.load(); }

 private:
  void clean(Remains& remains);

  std::shared_ptr<Cgroups> cgroups_;
  std::shared_ptr<IdRanges> ids_;
  std::shared_ptr<FullNetwork> network_;
  std::atomic<std::size_t> backlog_{0};
  std::atomic<std::size_t> leaked_{0};
  boost::asio::thread_pool thread_{1};
};

}  // namespace asr
