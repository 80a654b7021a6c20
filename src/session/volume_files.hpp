// The files of a volume, seen without a session: through a sandbox that has nothing but it. Paths
// are resolved in there, so that no name and no link in a volume leads anywhere else.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "provider/provider.hpp"
#include "session/bell.hpp"

namespace asr {

// On one thread. Outlived by the provider.
class VolumeFiles {
 public:
  static constexpr std::string_view kPlace = "/volume";  // where the files are in there

  VolumeFiles(asio::any_io_executor executor, Provider& provider)
      : executor_(std::move(executor)), provider_(provider), changed_(executor_) {}
  ~VolumeFiles() { *stopped_ = true; }

  // Kept for some time, because files are seldom alone. `source`: of the volume.
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> open(std::string source);
  // Nobody may look into it any more.
  asio::awaitable<void> close(std::string source);

 private:
  static constexpr std::size_t kMost = 16;
  struct View {
    std::shared_ptr<Sandbox> sandbox;  // none: being made
    std::chrono::steady_clock::time_point used;
  };
  asio::awaitable<void> close_unused();

  asio::any_io_executor executor_;
  Provider& provider_;
  Bell changed_;
  std::map<std::string, View> views_;  // by source
  bool closing_ = false;
  std::shared_ptr<bool> stopped_ = std::make_shared<bool>(false);
};

}  // namespace asr
