#include "interpreter/warm_python.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "frozen/programs.hpp"
#include "interpreter/frozen_layer.hpp"
#include "interpreter/kernel_process.hpp"
#include "interpreter/language.hpp"
#include "net/json.hpp"

extern "C" const char asr_python_warm_begin[], asr_python_warm_end[];

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 30;
constexpr std::size_t kMostComplaints = 1000;
constexpr auto kWithin = 120s;  // Large libraries take their time.

// The kernel, what freezes it, and the call that does.
std::string program_text(const std::vector<std::string>& imports, std::uint64_t layer) {
  std::string text = python_definitions();
  text.append(asr_python_warm_begin, asr_python_warm_end);
  json::array names;
  for (const std::string& name : imports) names.emplace_back(name);
  // JSON's texts and lists are Python's, too.
  text += "\nbecome_frozen(" + to_text(names) + ", " + std::to_string(layer) + ", \"" +
          base64(frozen::freeze_library()) + "\")\n";
  return std::to_string(text.size()) + "\n" + text;
}

// What it wrote, until it ends.
struct Image {
  explicit Image(NewLayer l) : layer(std::move(l)) {}
  NewLayer layer;
  std::string complaints;
};

asio::awaitable<Result<void>> read_image(std::shared_ptr<Execution> process,
                                         std::shared_ptr<Image> image) {
  for (;;) {
    auto reading = process->read();
    auto chunk = CO_TRY(co_await std::move(reading));
    if (!chunk) co_return Result<void>();
    if (chunk->stream != OutputChunk::Stream::reply) {
      image->complaints += chunk->data;  // The last words tell most.
      if (image->complaints.size() > kMostComplaints)
        image->complaints.erase(0, image->complaints.size() - kMostComplaints);
      continue;
    }
    if (image->layer.file.size() + chunk->data.size() > kMostBytes)
      co_return fail(Errc::exhausted, "it is larger than 1 GiB");
    CO_TRY(image->layer.file.append(chunk->data));
  }
}

}  // namespace

asio::awaitable<Result<WarmPython>> freeze_python(std::shared_ptr<Sandbox> sandbox,
                                                  std::vector<std::string> imports) {
  auto thaw = CO_TRY(thaw_file());
  auto image = std::make_shared<Image>(CO_TRY(make_layer()));
  Command command = kernel_command(*find_language("python"), nullptr);
  // Libraries that compute start a thread per processor when they are loaded; none may run.
  for (const char* name : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    command.env[name] = "1";
  command.wall_time = kWithin;
  auto starting = sandbox->start(std::move(command));
  std::shared_ptr<Execution> process = CO_TRY(co_await std::move(starting));
  auto executor = co_await asio::this_coro::executor;
  asio::steady_timer patience(executor, kWithin);
  end_when_late(patience, process);
  auto greeting = process->write_stdin(program_text(imports, image->layer.number));
  (void)co_await std::move(greeting);  // If it cannot hear us, its end tells why.

  auto reading = read_image(process, image);
  auto all = co_await std::move(reading);
  auto waiting = process->wait();
  ExitStatus status = CO_TRY(co_await std::move(waiting));
  CO_TRY(std::move(all));
  if (status.reason == EndReason::not_started)
    co_return fail(Errc::unsupported, "there is no python3");
  if (!status.ok())
    co_return fail(Errc::unsupported,
                   "it ended before it was frozen: " + repair_utf8(image->complaints));
  SealedLayer sealed = CO_TRY(seal_layer(std::move(image->layer)));
  WarmPython warm;
  warm.bytes = sealed.layer->bytes;
  warm.complaints = repair_utf8(image->complaints);
  warm.program = CO_TRY(program_of(sealed, std::move(thaw), {}));
  co_return warm;
}

bool may_be_thawed(const std::map<std::string, std::string>& env) {
  constexpr std::string_view kAtStart[]{"PYTHON",  "LD_",  "LC_",       "LANG", "GLIBC_",
                                        "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "TZ"};
  return std::none_of(env.begin(), env.end(), [&](const auto& variable) {
    return std::any_of(std::begin(kAtStart), std::end(kAtStart),
                       [&](std::string_view prefix) { return variable.first.starts_with(prefix); });
  });
}

}  // namespace asr
