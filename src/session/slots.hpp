// So many at a time, the others wait. Taken on one thread.
#pragma once

#include <boost/asio/dispatch.hpp>
#include <memory>

#include "session/bell.hpp"

namespace asr {

class Slots {
 public:
  Slots(asio::any_io_executor executor, unsigned count)
      : state_(std::make_shared<State>(std::move(executor), count)) {}

  // A slot is taken for as long as what is given lives, on whichever thread that ends.
  asio::awaitable<std::shared_ptr<void>> take() { return take_from(state_); }

 private:
  struct State {
    State(asio::any_io_executor of, unsigned count)
        : executor(std::move(of)), changed(executor), left(count) {}
    asio::any_io_executor executor;
    Bell changed;
    unsigned left;
  };

  static asio::awaitable<std::shared_ptr<void>> take_from(std::shared_ptr<State> state) {
    while (state->left == 0) co_await state->changed.wait();
    --state->left;
    auto give_back = [state](void*) {
      asio::dispatch(state->executor, [state] {
        ++state->left;
        state->changed.ring();
      });
    };
    co_return std::shared_ptr<void>(state.get(), give_back);
  }

  std::shared_ptr<State> state_;
};

}  // namespace asr
