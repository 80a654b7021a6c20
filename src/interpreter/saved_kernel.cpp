#include "interpreter/saved_kernel.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "frozen/programs.hpp"
#include "interpreter/frozen_layer.hpp"
#include "interpreter/kernel_process.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr auto kSaveWithin = 60s;
constexpr std::size_t kMostFiles = 50;
constexpr std::size_t kMostLayers = 6;  // More are put together into one, above the lowest.

using Layers = std::vector<std::shared_ptr<const FrozenLayer>>;

// What may be built upon.
Layers below(const KernelTalk& talk) {
  if (!talk.frozen) return {};
  const Layers& layers = talk.frozen->layers;
  if (layers.size() < kMostLayers) return layers;
  return {layers.back()};
}

json::object request_for(const KernelTalk& talk, std::uint64_t layer, const Layers& layers) {
  json::array numbers;
  for (const auto& one : layers) numbers.emplace_back(one->number);
  json::object request{{"layer", layer}, {"below", std::move(numbers)}};
  // One that came out of an image has what it needs for it.
  if (!talk.frozen) request["library"] = base64(frozen::freeze_library());
  return request;
}

// What it says to this request, and nothing else: there is no cell whose output it could be.
asio::awaitable<Result<KernelEvent>> answer_of(std::shared_ptr<KernelTalk> talk,
                                               std::uint64_t number) {
  for (;;) {
    auto event = CO_TRY(talk->events.next());
    if (event && event->id == number) co_return std::move(*event);
    if (event) continue;
    auto reading = talk->process->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) co_return fail(Errc::conflict, "the interpreter has ended");
    if (chunk->stream == OutputChunk::Stream::reply) CO_TRY(talk->events.feed(chunk->data));
  }
}

Result<void> check(const KernelEvent& event, KernelEvent::Kind wanted) {
  if (const json::value* problem = event.fields.if_contains("problem");
      problem && problem->is_string())
    return fail(Errc::unsupported, repair_utf8(std::string(problem->get_string()).substr(0, 300)));
  if (event.kind != wanted)
    return fail(Errc::internal, "the interpreter said something that nobody understands");
  return {};
}

void take_losses(const json::object& from, SavedKernel& saved) {
  const json::value* threads = from.if_contains("threads");
  if (threads && threads->is_int64() && threads->get_int64() > 0)
    saved.threads = static_cast<std::uint64_t>(threads->get_int64());
  const json::value* loop = from.if_contains("loop");
  saved.event_loop = loop && loop->is_bool() && loop->get_bool();
  const json::value* files = from.if_contains("files");
  if (!files || !files->is_array()) return;
  for (const json::value& file : files->get_array())
    if (file.is_string() && saved.files.size() < kMostFiles)
      saved.files.push_back(repair_utf8(std::string(file.get_string()).substr(0, 100)));
}

}  // namespace

asio::awaitable<Result<SavedKernel>> save_kernel(std::shared_ptr<KernelTalk> talk,
                                                 std::uint64_t number) {
  auto thaw = talk->frozen ? talk->frozen->thaw : CO_TRY(thaw_file());
  NewLayer layer = CO_TRY(make_layer());
  // Before it is asked: it waits for this, and takes the next byte that comes for its.
  UniqueFd shared = CO_TRY(layer.file.share());
  Layers layers = below(*talk);
  asio::steady_timer patience(co_await asio::this_coro::executor, kSaveWithin);
  end_when_late(patience, talk->process);

  auto asking = talk->process->write_stdin(
      kernel_request("save", number, to_text(request_for(*talk, layer.number, layers))));
  CO_TRY(co_await std::move(asking));
  auto hearing = answer_of(talk, number);
  KernelEvent saving = CO_TRY(co_await std::move(hearing));
  CO_TRY(check(saving, KernelEvent::Kind::saving));
  auto giving = talk->process->send_descriptor(std::move(shared));
  auto given = co_await std::move(giving);
  if (!given) {
    auto letting_go = talk->process->write_stdin(".");  // It notices that nothing came with it.
    CO_TRY(co_await std::move(letting_go));
  }
  auto waiting = answer_of(talk, number);
  KernelEvent done = CO_TRY(co_await std::move(waiting));
  CO_TRY(std::move(given));
  CO_TRY(check(done, KernelEvent::Kind::saved));

  SealedLayer sealed = CO_TRY(seal_layer(std::move(layer)));
  SavedKernel saved;
  take_losses(done.fields, saved);
  saved.bytes = sealed.layer->bytes;
  saved.program = CO_TRY(program_of(sealed, std::move(thaw), layers));
  co_return saved;
}

}  // namespace asr
