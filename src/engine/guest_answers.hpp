// Asking a guest and believing only answers that make sense.
#pragma once

#include <chrono>

#include "engine/channel.hpp"
#include "wire/guest_messages.hpp"

namespace asr {

// A guest that is alive answers at once; file work may take long on a large tree.
inline constexpr std::chrono::seconds kAnswerWithin{30};
inline constexpr std::chrono::minutes kWorkWithin{30};

// The error in an answer that is not the one asked for.
Error failure_in(const Letter& letter);

// The one descriptor that an Opened brings.
Result<UniqueFd> descriptor_in(Letter letter);
// The same if it is a pipe to read from. As a description of our own: the sandbox does not share
// its flags.
Result<UniqueFd> pipe_in(Letter letter);

template <class Message>
asio::awaitable<Result<Letter>> ask(std::shared_ptr<Channel> channel, Message message,
                                    std::vector<UniqueFd> fds = {},
                                    std::chrono::milliseconds within = kAnswerWithin) {
  auto box = channel->box();
  std::vector<int> borrowed;
  for (const UniqueFd& fd : fds) borrowed.push_back(fd.get());
  CO_TRY(channel->send(box->id(), message, borrowed));
  fds.clear();
  Letter answer = CO_TRY(co_await box->next(Channel::Clock::now() + within));
  if (answer.type == static_cast<std::uint16_t>(wire::GuestType::failure))
    co_return fail(failure_in(answer));
  co_return answer;
}

template <class Message>
asio::awaitable<Result<void>> ask_done(std::shared_ptr<Channel> channel, Message message,
                                       std::chrono::milliseconds within = kAnswerWithin) {
  auto asking = ask(channel, std::move(message), {}, within);
  Letter answer = CO_TRY(co_await std::move(asking));
  if (!answer.as<wire::Done>()) co_return fail(failure_in(answer));
  co_return Result<void>();
}

}  // namespace asr
