#include "interpreter/kernel_events.hpp"

#include <array>
#include <utility>

namespace asr {

namespace {

using Kind = KernelEvent::Kind;
constexpr std::array<std::pair<std::string_view, Kind>, 8> kKinds{
    {{"ready", Kind::ready},
     {"result", Kind::result},
     {"error", Kind::error},
     {"input", Kind::input},
     {"done", Kind::done},
     {"completions", Kind::completions},
     {"saving", Kind::saving},
     {"saved", Kind::saved}}};

Error nonsense() {
  return {Errc::internal, "the interpreter said something that nobody understands"};
}

Result<KernelEvent> event_in(std::string_view line) {
  auto value = parse_json(line);
  if (!value || !value->is_object()) return fail(nonsense());
  KernelEvent event;
  event.fields = std::move(value->get_object());
  const json::value* name = event.fields.if_contains("event");
  if (!name || !name->is_string()) return fail(nonsense());
  const json::value* id = event.fields.if_contains("id");
  if (id && id->is_int64() && id->get_int64() >= 0)
    event.id = static_cast<std::uint64_t>(id->get_int64());
  for (const auto& [word, kind] : kKinds) {
    if (std::string_view(name->get_string()) != word) continue;
    event.kind = kind;
    return event;
  }
  return fail(nonsense());
}

}  // namespace

Result<void> KernelEvents::feed(std::string_view bytes) {
  if (pending_.size() + bytes.size() > kLongestLine)
    return fail(Errc::exhausted, "a result is larger than 32 MiB", "write it to a file");
  pending_ += bytes;
  return {};
}

Result<std::optional<KernelEvent>> KernelEvents::next() {
  std::size_t end = pending_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = pending_.size();
    return std::optional<KernelEvent>();
  }
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  searched_ = 0;
  return std::optional(TRY(event_in(line)));
}

std::string kernel_request(std::string_view op, std::uint64_t id, std::string_view payload) {
  std::string text(op);
  text += ' ';
  text += std::to_string(id);
  text += ' ';
  text += std::to_string(payload.size());
  text += '\n';
  text += payload;
  return text;
}

}  // namespace asr
