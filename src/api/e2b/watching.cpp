#include "api/e2b/watching.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace asr {

Watching::Watching(asio::any_io_executor executor, std::unique_ptr<Watch> source, Options options)
    : executor_(executor),
      source_(std::move(source)),
      options_(std::move(options)),
      changed_(std::move(executor)) {}

Watching::~Watching() { close(); }

void Watching::begin() { asio::co_spawn(executor_, gather(shared_from_this()), asio::detached); }

void Watching::close() {
  over_ = true;
  source_->close();
  changed_.ring();
}

asio::awaitable<void> Watching::gather(std::shared_ptr<Watching> self) {
  while (!self->over_) {
    auto waiting = self->source_->next();
    auto events = co_await std::move(waiting);
    if (!events) break;
    for (WatchEvent& event : *events) {
      if (!self->options_.recursive && event.path.find('/') != std::string::npos) continue;
      if (self->seen_.size() >= kMostEvents) self->seen_.pop_front();
      self->seen_.push_back(std::move(event));
    }
    self->changed_.ring();
  }
  self->over_ = true;
  self->changed_.ring();
}

std::deque<WatchEvent> Watching::take() {
  asked_ = Bell::Clock::now();
  return std::exchange(seen_, {});
}

std::optional<json::object> filesystem_event(const WatchEvent& event) {
  const char* type = nullptr;
  switch (event.kind) {
    case WatchEvent::Kind::created:
    case WatchEvent::Kind::moved_to:
      type = "EVENT_TYPE_CREATE";
      break;
    case WatchEvent::Kind::modified:
      type = "EVENT_TYPE_WRITE";
      break;
    case WatchEvent::Kind::removed:
      type = "EVENT_TYPE_REMOVE";
      break;
    case WatchEvent::Kind::moved_from:
      type = "EVENT_TYPE_RENAME";
      break;
    case WatchEvent::Kind::attributes:
      type = "EVENT_TYPE_CHMOD";
      break;
    case WatchEvent::Kind::overflow:
      return std::nullopt;
  }
  return json::object{{"name", repair_utf8(event.path)}, {"type", type}};
}

}  // namespace asr
