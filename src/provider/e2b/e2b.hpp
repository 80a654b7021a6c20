// Sessions in E2B's cloud, or on any server that speaks its protocol: another agent-sandbox
// included.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "provider/e2b/remote.hpp"
#include "provider/provider.hpp"

namespace asr {

struct E2bSettings {
  e2b::RemoteSettings remote;
  std::string default_template = "base";
  // A sandbox ends when it has not heard of us for so long.
  std::chrono::seconds lease{300};
  // The other side ends sandboxes that are older, renewed or not; zero: it does not.
  std::chrono::seconds longest_life{0};
  e2b::Resources resources;      // what its template gives, where the provider does not say
  std::string server;            // who we are: [a-z0-9], the same after every start
  std::filesystem::path folder;  // ours, for what must survive and for copies of files
};

// The dialer and the log outlive it. Makes a thread.
Result<std::unique_ptr<Provider>> e2b_provider(asio::any_io_executor executor, E2bSettings settings,
                                               EgressDialer* dialer, const Log& log);

// What none of its sandboxes can do, and why.
Abilities e2b_abilities();

}  // namespace asr
