// Sandboxes with a network device: a pair of links each, an address, and one table of the packet
// filter for all of this instance.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/engine.hpp"
#include "engine/full_network_rules.hpp"
#include "policy/isolation.hpp"

namespace asr {

// A sandbox's uid range is its slot: no two that live share one, on the whole machine, and whoever
// takes the sandbox over has it, too.
class FullNetwork {
 public:
  // `dir` is the instance's folder.
  FullNetwork(InstanceId instance, std::filesystem::path dir);
  ~FullNetwork();  // Waits for what is under way.

  // Puts the rules in place, those of the engine before this one being replaced. What stands in the
  // way is what check() says.
  void open(const FullNetworkOptions& options);
  // Removes every link and the table, those of an earlier engine of this instance included.
  void close();

  // Whether a sandbox can have a network now, or why not.
  Result<void> check() const;
  // Gives the sandbox of this process a link that is up.
  boost::asio::awaitable<Result<void>> attach(UniqueFd pidfd, std::uint32_t first_id);
  void detach(std::uint32_t first_id);  // Blocks. One that is not there is no error.

  std::string resolv_conf() const;
  std::vector<IsolationFact> facts() const;

 private:
  friend Result<void> check(const FullNetworkOptions& options);
  Result<void> read(const FullNetworkOptions& options);
  Result<void> install() const;
  void start_guard();
  void stop_guard();
  void restore_rules();
  Ipv4 address_of(std::uint32_t first_id) const;
  Result<void> attach_now(int pidfd, std::uint32_t first_id) const;

  InstanceId instance_;
  std::filesystem::path dir_;
  NetworkRules rules_;
  Ipv4Network range_;
  std::optional<Error> why_not_;
  std::atomic<bool> rules_lost_{false};
  std::thread guard_;  // Puts the rules back when somebody flushes all of the machine's.
  UniqueFd guard_end_;
  std::once_flag thread_made_;
  std::unique_ptr<boost::asio::thread_pool> thread_;
};

Result<void> check(const FullNetworkOptions& options);  // Whether they make sense.

std::string link_of(const InstanceId& instance, std::uint32_t first_id);

// Removes what an instance that died has left of networks: links but for the spared ones, and the
// table unless there are any. Returns what could not be removed.
std::vector<std::string> sweep_network(const std::filesystem::path& dir, const InstanceId& instance,
                                       const std::set<std::string>& spared = {});

// Whether this machine can give sandboxes a network at all: tried, in a namespace that ends with
// the trial.
Result<void> try_full_network();

}  // namespace asr
