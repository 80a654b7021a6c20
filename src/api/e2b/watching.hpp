// Changes below a folder, gathered until somebody asks. Bounded: who does not ask loses the oldest.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "engine/sandbox.hpp"
#include "net/json.hpp"
#include "session/bell.hpp"

namespace asr {

class Watching : public std::enable_shared_from_this<Watching> {
 public:
  static constexpr std::size_t kMostEvents = 10000;

  struct Options {
    std::string path;  // the folder
    bool recursive = false;
    bool entries = false;  // what is there now goes with each event
  };

  Watching(asio::any_io_executor executor, std::unique_ptr<Watch> source, Options options);
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  ~Watching();

  void begin();  // gathering
  void close();
  bool is_over() const noexcept { return over_; }
  const Options& options() const noexcept { return options_; }
  asio::awaitable<void> wait(Bell::Clock::time_point deadline) { return changed_.wait(deadline); }
  std::deque<WatchEvent> take();
  Bell::Clock::time_point asked() const noexcept { return asked_; }

 private:
  static asio::awaitable<void> gather(std::shared_ptr<Watching> self);

  asio::any_io_executor executor_;
  std::unique_ptr<Watch> source_;
  Options options_;
  std::deque<WatchEvent> seen_;
  Bell changed_;
  Bell::Clock::time_point asked_ = Bell::Clock::now();
  bool over_ = false;
};

// FilesystemEvent, but for the entry. Nothing for what E2B does not tell.
std::optional<json::object> filesystem_event(const WatchEvent& event);

}  // namespace asr
