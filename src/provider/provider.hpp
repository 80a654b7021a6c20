// Where a session's computer comes from. A session asks one of these and gets a Sandbox, whatever
// is behind it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "engine/sandbox.hpp"
#include "policy/spec.hpp"
#include "provider/abilities.hpp"

namespace asr {

// What whoever asks for a sandbox has to say beside its spec.
struct SandboxWish {
  std::string label;  // as it will be kept under; known from the start where that is far away
  std::string image;  // a name that the provider knows; empty: its own choice
};

// A sandbox of an earlier life of this server, as that one wrote it down.
struct KnownSandbox {
  std::string id;
  std::string label;
  SandboxSpec spec;
  bool paused = false;
};

class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string_view name() const noexcept = 0;
  // What can be asked of it; the rest answers Errc::unsupported.
  virtual const Abilities& abilities() const noexcept = 0;
  // How long its sandboxes live at most, whatever is done; zero: as long as they are wanted.
  virtual std::chrono::seconds longest_life() const noexcept { return std::chrono::seconds(0); }
  // Empty while all is well; else why nothing can be had at the moment.
  virtual std::string trouble() const { return ""; }

  virtual asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec,
                                                                   SandboxWish wish) = 0;
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) {
    return create(std::move(spec), SandboxWish());
  }
  // Others with the files and programs of one that goes on, under these labels.
  virtual asio::awaitable<Result<std::vector<std::shared_ptr<Sandbox>>>> fork(
      std::shared_ptr<Sandbox> sandbox, std::vector<std::string> labels);
  virtual std::vector<PoolState> pools() const = 0;

  // Whether Sandbox::keep() makes a sandbox outlive this server.
  virtual bool can_keep() const noexcept = 0;
  // Those that the last life of this server kept; handed over, each with its label. One that is
  // known and not among them has ended. What is there and nobody knows is removed.
  virtual asio::awaitable<std::vector<std::shared_ptr<Sandbox>>> adopt(
      std::vector<KnownSandbox> known) = 0;

  // Disks and volumes; see Engine.
  virtual asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) = 0;
  virtual asio::awaitable<Result<void>> remove_storage(std::string path) = 0;

  // Lets go of everything; sandboxes that are kept go on.
  virtual void stop() {}
};

// Sandboxes of this machine's own kernel. The engine outlives it.
struct NativeOptions {
  bool full_network = false;
};
// What none of its sandboxes can do, and why.
Abilities native_abilities(const NativeOptions& options);
std::unique_ptr<Provider> native_provider(Engine& engine, NativeOptions options = {});

}  // namespace asr
