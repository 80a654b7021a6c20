#include "session/warm_interpreters.hpp"

#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr auto kGiftEvery = 1s;          // One more may be made ready although none was used.
constexpr std::size_t kMostImages = 16;  // Environments come and go; their images take memory.

bool is_python(const KernelStart& how) { return how.language->name == "python"; }

}  // namespace

WarmInterpreters::WarmInterpreters(asio::any_io_executor executor, Provider& provider,
                                   const Log& log, WarmSettings settings)
    : executor_(std::move(executor)),
      provider_(provider),
      log_(log),
      settings_(std::move(settings)),
      credit_(2 * settings_.most_ready) {}

asio::awaitable<Result<WarmPython>> WarmInterpreters::make_image(Environment environment) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.environment = environment;
  spec.limits.memory_bytes = 2ULL << 30;
  spec.limits.milli_cpus = 0;  // Somebody waits for it.
  auto creating = provider_.create(std::move(spec));
  std::shared_ptr<Sandbox> sandbox = CO_TRY(co_await std::move(creating));
  auto freezing = freeze_python(sandbox, settings_.imports);
  auto python = co_await std::move(freezing);
  auto destroying = sandbox->destroy();
  (void)co_await std::move(destroying);
  co_return python;
}

asio::awaitable<void> WarmInterpreters::prepare(Environment environment) {
  auto self = shared_from_this();
  if (settings_.off || images_.contains(environment) || images_.size() >= kMostImages) co_return;
  images_[environment];
  auto making = make_image(environment);
  auto python = co_await std::move(making);
  Image& image = images_[environment];
  if (!python) {
    image.state = Image::State::impossible;
    log_.warning("interpreters of an environment are started from their files",
                 {{"environment", to_string(environment)}, {"why", python.error().what}});
    co_return;
  }
  if (!python->complaints.empty())
    log_.warning("not everything could be imported in advance",
                 {{"environment", to_string(environment)}, {"why", python->complaints}});
  image = {Image::State::there, std::move(*python)};
}

std::shared_ptr<const FrozenProgram> WarmInterpreters::image_for(const Environment& environment) {
  auto found = images_.find(environment);
  if (found == images_.end()) {
    asio::co_spawn(executor_, prepare(environment), asio::detached);
    return nullptr;
  }
  return found->second.python.program;
}

std::optional<KernelProcess> WarmInterpreters::take(const std::shared_ptr<Sandbox>& sandbox,
                                                    const KernelStart& how) {
  auto found = waiting_.find(sandbox->id().text);
  if (found == waiting_.end() || !how.cwd.empty()) return std::nullopt;
  KernelProcess kernel = std::move(found->second.kernel);
  waiting_.erase(found);
  return kernel;
}

asio::awaitable<Result<KernelProcess>> WarmInterpreters::start(std::shared_ptr<Sandbox> sandbox,
                                                               KernelStart how) {
  auto self = shared_from_this();
  // Images are of programs of this machine.
  bool is_here = sandbox->host_pid() != 0;
  if (is_here && is_python(how) && may_be_thawed(how.env)) {
    earn();
    if (auto waiting = take(sandbox, how)) {
      json::object env;
      for (const auto& [name, value] : how.env) env[name] = value;
      Result<void> told;
      if (!env.empty()) {
        auto telling = waiting->process->write_stdin(kernel_request("environ", 0, to_text(env)));
        told = co_await std::move(telling);
      }
      if (told) {
        ++counts_.ready;
        co_return std::move(*waiting);
      }
    }
    how.frozen = image_for(sandbox->spec().environment);
  }
  bool wanted = how.frozen != nullptr;
  auto environment = sandbox->spec().environment;
  auto starting = start_kernel(std::move(sandbox), std::move(how));
  auto kernel = co_await std::move(starting);
  if (!kernel) co_return kernel;
  ++(kernel->frozen ? counts_.thawed : counts_.started);
  if (wanted && !kernel->frozen)
    log_.warning("an interpreter could not be made from its image and was started",
                 {{"environment", to_string(environment)}});
  co_return kernel;
}

void WarmInterpreters::forget(const std::shared_ptr<Sandbox>& sandbox) {
  auto waiting = take(sandbox, {});
  if (!waiting) return;
  // Nothing is earned with it: whoever branches much has no use for those that wait.
  auto end = [](std::shared_ptr<Execution> process) -> asio::awaitable<void> {
    auto killing = process->signal(SIGKILL);
    (void)co_await std::move(killing);
  };
  asio::co_spawn(executor_, end(waiting->process), asio::detached);
}

void WarmInterpreters::earn() { credit_ = std::min(credit_ + 2, 2 * settings_.most_ready); }

bool WarmInterpreters::spend() {
  auto now = std::chrono::steady_clock::now();
  if (credit_ == 0 && now - last_gift_ < kGiftEvery) return false;
  if (credit_ == 0)
    last_gift_ = now;
  else
    --credit_;
  return true;
}

asio::awaitable<void> WarmInterpreters::make_ready(std::shared_ptr<Sandbox> sandbox) {
  auto self = shared_from_this();
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.sandbox.expired(); });
  auto found = images_.find(sandbox->spec().environment);
  if (found == images_.end() || !found->second.python.program || !spend()) co_return;
  KernelStart how;
  how.language = find_language("python");
  how.frozen = found->second.python.program;
  auto starting = start_kernel(sandbox, std::move(how));
  if (auto kernel = co_await std::move(starting))
    waiting_[sandbox->id().text] = {sandbox, std::move(*kernel)};
}

WarmCounts WarmInterpreters::counts() const {
  WarmCounts counts = counts_;
  for (const auto& [environment, image] : images_) {
    if (image.state != Image::State::there) continue;
    ++counts.images;
    counts.image_bytes += image.python.bytes;
  }
  return counts;
}

}  // namespace asr
