#include "session/volume_files.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace asr {

namespace {

constexpr std::chrono::seconds kKeepUnused{30};

SandboxSpec spec_for(const std::string& source) {
  SandboxSpec spec = spec_of(Preset::strict);
  spec.volumes = {{source, std::string(VolumeFiles::kPlace), false}};
  return spec;
}

}  // namespace

asio::awaitable<Result<std::shared_ptr<Sandbox>>> VolumeFiles::open(std::string source) {
  auto stopped = stopped_;
  for (;;) {
    auto found = views_.find(source);
    if (found == views_.end()) break;
    if (found->second.sandbox && found->second.sandbox->is_alive()) {
      found->second.used = std::chrono::steady_clock::now();
      co_return found->second.sandbox;
    }
    if (found->second.sandbox) {
      views_.erase(found);
      break;
    }
    co_await changed_.wait();
    if (*stopped) co_return fail(Errc::gone, "the server stops");
  }
  if (views_.size() >= kMost)
    co_return fail(Errc::exhausted, "files of many volumes are looked at", "try again in a minute");
  views_[source];
  auto creating = provider_.create(spec_for(source));
  auto made = co_await std::move(creating);
  if (*stopped) co_return fail(Errc::gone, "the server stops");
  if (!made)
    views_.erase(source);
  else
    views_[source] = {*made, std::chrono::steady_clock::now()};
  changed_.ring();
  if (made && !closing_) {
    closing_ = true;
    asio::co_spawn(executor_, close_unused(), asio::detached);
  }
  co_return made;
}

asio::awaitable<void> VolumeFiles::close(std::string source) {
  auto found = views_.find(source);
  if (found == views_.end() || !found->second.sandbox) co_return;
  auto sandbox = found->second.sandbox;
  views_.erase(found);
  auto destroying = sandbox->destroy();
  (void)co_await std::move(destroying);
}

asio::awaitable<void> VolumeFiles::close_unused() {
  auto stopped = stopped_;
  while (!views_.empty()) {
    co_await changed_.wait(std::chrono::steady_clock::now() + kKeepUnused);
    if (*stopped) co_return;
    std::vector<std::string> old;
    for (const auto& [source, view] : views_)
      if (view.sandbox && std::chrono::steady_clock::now() - view.used >= kKeepUnused)
        old.push_back(source);
    for (const std::string& source : old) {
      auto ending = close(source);
      co_await std::move(ending);
      if (*stopped) co_return;
    }
  }
  closing_ = false;
}

}  // namespace asr
