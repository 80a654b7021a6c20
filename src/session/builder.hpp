// Builds programs, each in a sandbox of its own, and remembers what came of it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "provider/provider.hpp"
#include "session/build_cache.hpp"
#include "session/call_off.hpp"
#include "session/program.hpp"

namespace asr {

// On one thread. Whoever waits in build() is outlived by it.
class Builder {
 public:
  Builder(asio::any_io_executor executor, Provider& provider);

  // The executable of a program, or why there is none. Equal programs of one owner that are built
  // at the same time are built once. An error is the platform's.
  asio::awaitable<Result<BuiltPtr>> build(std::string owner, std::shared_ptr<const Program> program,
                                          std::shared_ptr<CallOff> call_off);

  std::uint64_t built() const noexcept { return built_; }    // by a compiler
  std::uint64_t reused() const noexcept { return reused_; }  // without one

 private:
  struct Building;
  using BuildingPtr = std::shared_ptr<Building>;

  asio::awaitable<void> carry_out(BuildingPtr building, std::shared_ptr<const Program> program);
  asio::awaitable<Result<BuiltPtr>> compile(BuildingPtr building,
                                            std::shared_ptr<const Program> program);

  asio::any_io_executor executor_;
  Provider& provider_;
  BuildCache cache_;
  std::map<std::pair<std::string, std::string>, BuildingPtr> under_way_;  // by owner and name
  std::uint64_t built_ = 0;
  std::uint64_t reused_ = 0;
};

// Whether files that could not be written are the doing of who named them.
bool is_callers(const Error& error) noexcept;

// Ends a sandbox when somebody calls off.
std::function<void()> ends(asio::any_io_executor executor, std::shared_ptr<Sandbox> sandbox);

}  // namespace asr
