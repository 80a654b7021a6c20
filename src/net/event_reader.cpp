#include "net/event_reader.hpp"

#include <utility>

namespace asr {

Result<void> EventReader::feed(std::string_view bytes,
                               const std::function<Result<void>(ServerEvent)>& take) {
  while (!bytes.empty()) {
    std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() + event_.data.size() > kMostBytes)
      return fail(Errc::exhausted, "an event is too large");
    if (end == std::string_view::npos) return {};
    bytes.remove_prefix(end + 1);
    TRY(end_line(take));
  }
  return {};
}

Result<void> EventReader::end_line(const std::function<Result<void>(ServerEvent)>& take) {
  std::string line = std::exchange(line_, {});
  if (line.ends_with('\r')) line.pop_back();
  if (line.empty()) {
    ServerEvent event = std::exchange(event_, {});
    if (!std::exchange(has_data_, false)) return {};
    return take(std::move(event));
  }
  std::size_t colon = line.find(':');
  std::string_view name = std::string_view(line).substr(0, colon);
  std::string_view value;
  if (colon != std::string::npos) value = std::string_view(line).substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "event") event_.type = value;
  if (name == "id") event_.id = value;
  if (name == "data") {
    if (std::exchange(has_data_, true)) event_.data += '\n';
    event_.data += value;
  }
  return {};
}

}  // namespace asr
