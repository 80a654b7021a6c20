// Where a session's computer comes from. A session asks one of these and gets a Sandbox, whatever
// is behind it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "engine/sandbox.hpp"
#include "policy/spec.hpp"

namespace asr {

class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) = 0;
  virtual std::vector<PoolState> pools() const = 0;

  // Whether Sandbox::keep() makes a sandbox outlive this server.
  virtual bool can_keep() const noexcept = 0;
  // Those that the last life of this server kept; handed over, each with its label.
  virtual std::vector<std::shared_ptr<Sandbox>> adopted() = 0;

  // Disks and volumes; see Engine.
  virtual asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) = 0;
  virtual asio::awaitable<Result<void>> remove_storage(std::string path) = 0;
};

// Sandboxes of this machine's own kernel. The engine outlives it.
std::unique_ptr<Provider> native_provider(Engine& engine);

}  // namespace asr
