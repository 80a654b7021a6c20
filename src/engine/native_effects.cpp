// The part of a native sandbox that measures what happens while something runs in it that was not
// started for that: a cell of an interpreter.
#include "engine/guest_answers.hpp"
#include "engine/native_sandbox.hpp"
#include "engine/told_effects.hpp"

namespace asr {

namespace {

class NativeEffectsWatch final : public EffectsWatch {
 public:
  NativeEffectsWatch(std::shared_ptr<Channel> channel, std::uint32_t since, std::int32_t process,
                     std::unique_ptr<MemoryPeaks::Watch> memory)
      : channel_(std::move(channel)),
        since_(since),
        process_(process),
        memory_(std::move(memory)) {}

  asio::awaitable<Result<Effects>> finish() override {
    wire::TellEffects request;
    request.since = since_;
    request.process = process_;
    auto asking = ask(channel_, request);
    Letter answer = CO_TRY(co_await on_strand(channel_->executor(), std::move(asking)));
    auto measured = answer.as<wire::Measured>();
    if (!measured) co_return fail(failure_in(answer));
    bool knows_time = measured->cpu_us >= 0;
    Effects effects = effects_of(*std::move(measured), memory_.get());
    if (!knows_time) effects.unknown["cpu_ms"] = "the interpreter is gone";
    co_return effects;
  }

 private:
  std::shared_ptr<Channel> channel_;
  std::uint32_t since_;
  std::int32_t process_;
  std::unique_ptr<MemoryPeaks::Watch> memory_;
};

// The number of the request stands for the stock that was taken.
asio::awaitable<Result<std::uint32_t>> begin_measuring(std::shared_ptr<Channel> channel,
                                                       std::int32_t process) {
  wire::TakeStock request;
  request.process = process;
  auto box = channel->box();
  CO_TRY(channel->send(box->id(), request));
  Letter answer = CO_TRY(co_await box->next(Channel::Clock::now() + kAnswerWithin));
  if (!answer.as<wire::Done>()) co_return fail(failure_in(answer));
  co_return box->id();
}

}  // namespace

asio::awaitable<Result<std::unique_ptr<EffectsWatch>>> NativeSandbox::watch_effects(
    std::int32_t process) {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  auto memory = peaks_->watch();
  auto beginning = begin_measuring(birth_.channel, process);
  std::uint32_t since = CO_TRY(co_await on_strand(strand(), std::move(beginning)));
  co_return std::make_unique<NativeEffectsWatch>(birth_.channel, since, process, std::move(memory));
}

}  // namespace asr
