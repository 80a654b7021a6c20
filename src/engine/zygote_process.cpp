#include "engine/zygote_process.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "engine/on_strand.hpp"
#include "os/memory_file.hpp"
#include "os/pidfd.hpp"

extern "C" const char asr_zygote_image_begin[], asr_zygote_image_end[];

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr auto kConfigureWithin = 30s;
constexpr auto kLaunchWithin = 30s;

Errc to_errc(std::uint8_t code) {
  return code <= static_cast<std::uint8_t>(Errc::internal) ? static_cast<Errc>(code)
                                                           : Errc::internal;
}

Error refusal(const Letter& letter) {
  if (letter.lost_descriptors) return out_of_descriptors();
  if (auto refused = letter.as<wire::LaunchRefused>()) {
    Errc code = to_errc(refused->code);
    if (code == Errc::unsupported) return Error(code, refused->what);
    return Error(Errc::os, "zygote: " + refused->what,
                 code == Errc::denied ? "agent-sandbox doctor tells what is missing" : "");
  }
  return Error(Errc::internal, "the zygote sent a wrong answer");
}

// A zygote says nothing unasked.
void open_quietly(Channel& channel, std::shared_ptr<std::atomic<bool>> alive) {
  channel.open([](const Letter&) {}, [alive = std::move(alive)] { alive->store(false); });
}

}  // namespace

Result<UniqueFd> zygote_image() {
  return sealed_copy("agent-sandbox-zygote",
                     {asr_zygote_image_begin,
                      static_cast<std::size_t>(asr_zygote_image_end - asr_zygote_image_begin)});
}

ZygoteProcess::ZygoteProcess(std::shared_ptr<Channel> channel, int pid, UniqueFd pidfd)
    : channel_(std::move(channel)),
      pid_(pid),
      pidfd_(std::move(pidfd)),
      alive_(std::make_shared<std::atomic<bool>>(true)) {}

ZygoteProcess::~ZygoteProcess() {
  // Closing its socket would end it as well; the signal makes sure before we wait for it.
  asio::post(channel_->executor(), [channel = channel_] { channel->close(); });
  (void)send_signal(pidfd_.get(), SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

asio::awaitable<Result<std::shared_ptr<ZygoteProcess>>> ZygoteProcess::start(
    asio::any_io_executor executor, int image, wire::Configure configure) {
  SocketPair sockets = CO_TRY(seqpacket_pair());
  const char* argv[] = {"agent-sandbox-zygote", nullptr};
  std::array<int, 1> inherit{sockets.second.get()};
  Spawned spawned = CO_TRY(spawn_image(image, argv, inherit));
  sockets.second.reset();
  auto channel = std::make_shared<Channel>(asio::make_strand(executor), std::move(sockets.first));
  std::shared_ptr<ZygoteProcess> zygote(
      new ZygoteProcess(channel, spawned.pid, std::move(spawned.pidfd)));
  auto alive = zygote->alive_;

  auto talk = [](std::shared_ptr<Channel> link, std::shared_ptr<std::atomic<bool>> flag,
                 wire::Configure request) -> asio::awaitable<Result<wire::Configured>> {
    open_quietly(*link, std::move(flag));
    auto box = link->box();
    CO_TRY(link->send(box->id(), request));
    Letter answer = CO_TRY(co_await box->next(Channel::Clock::now() + kConfigureWithin));
    if (auto configured = answer.as<wire::Configured>()) co_return *configured;
    co_return fail(refusal(answer));
  };
  auto configuring = talk(channel, alive, std::move(configure));
  zygote->configured_ = CO_TRY(co_await on_strand(channel->executor(), std::move(configuring)));
  co_return zygote;
}

asio::awaitable<Result<LaunchedProcess>> ZygoteProcess::launch(wire::Create create,
                                                               std::vector<UniqueFd> fds,
                                                               std::function<void()> meanwhile) {
  auto talk = [](std::shared_ptr<Channel> link, wire::Create request, std::vector<UniqueFd> sent,
                 std::function<void()> work) -> asio::awaitable<Result<LaunchedProcess>> {
    if (!link->is_open()) co_return fail(Errc::os, "the zygote has ended");
    std::vector<int> borrowed;
    for (const UniqueFd& fd : sent) borrowed.push_back(fd.get());
    auto box = link->box();
    CO_TRY(link->send(box->id(), request, borrowed));
    sent.clear();
    work();
    auto answered = co_await box->next(Channel::Clock::now() + kLaunchWithin);
    if (!answered && !link->is_open()) co_return fail(Errc::os, "the zygote has ended");
    Letter answer = CO_TRY(std::move(answered));
    auto launched = answer.as<wire::Launched>();
    if (!launched || answer.fds.size() != 1) co_return fail(refusal(answer));
    co_return LaunchedProcess{launched->pid, std::move(answer.fds[0])};
  };
  auto launching = talk(channel_, create, std::move(fds), std::move(meanwhile));
  co_return co_await on_strand(channel_->executor(), std::move(launching));
}

}  // namespace asr
