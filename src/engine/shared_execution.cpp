// A program behind the public interface: every call goes to the sandbox's strand and comes back.
#include <boost/asio/post.hpp>

#include "engine/native_execution.hpp"
#include "engine/on_strand.hpp"

namespace asr {

namespace {

// Whoever asked may drop the program before the strand comes to the question.
template <class T>
asio::awaitable<Result<T>> hold([[maybe_unused]] std::shared_ptr<NativeExecution> execution,
                                asio::awaitable<Result<T>> work) {
  co_return co_await std::move(work);
}

class SharedExecution final : public Execution {
 public:
  SharedExecution(std::shared_ptr<NativeExecution> execution, asio::any_io_executor strand)
      : execution_(std::move(execution)), strand_(std::move(strand)) {}
  SharedExecution(const SharedExecution&) = delete;
  SharedExecution& operator=(const SharedExecution&) = delete;
  ~SharedExecution() override {
    asio::post(strand_, [execution = execution_] { execution->abandon(); });
  }

  std::int32_t pid() const noexcept override { return execution_->pid(); }
  std::string label() const override { return execution_->label(); }
  asio::awaitable<Result<std::optional<OutputChunk>>> read() override {
    return on_strand(strand_, hold(execution_, execution_->read()));
  }
  asio::awaitable<Result<void>> write_stdin(std::string data) override {
    return on_strand(strand_, hold(execution_, execution_->write_stdin(std::move(data))));
  }
  asio::awaitable<Result<void>> send_descriptor(UniqueFd descriptor) override {
    return on_strand(strand_, hold(execution_, execution_->send_descriptor(std::move(descriptor))));
  }
  asio::awaitable<Result<void>> close_stdin() override {
    auto closing = [](std::shared_ptr<NativeExecution> execution) -> asio::awaitable<Result<void>> {
      execution->close_stdin();
      co_return Result<void>();
    };
    return on_strand(strand_, closing(execution_));
  }
  asio::awaitable<Result<void>> close_output(OutputChunk::Stream stream) override {
    auto closing = [](std::shared_ptr<NativeExecution> execution,
                      OutputChunk::Stream kind) -> asio::awaitable<Result<void>> {
      execution->close_output(kind);
      co_return Result<void>();
    };
    return on_strand(strand_, closing(execution_, stream));
  }
  asio::awaitable<Result<void>> signal(int number) override {
    return on_strand(strand_, hold(execution_, execution_->signal(number)));
  }
  asio::awaitable<Result<void>> resize(TerminalSize size) override {
    return on_strand(strand_, hold(execution_, execution_->resize(size)));
  }
  asio::awaitable<Result<ExitStatus>> wait() override {
    return on_strand(strand_, hold(execution_, execution_->wait()));
  }
  asio::awaitable<Result<void>> keep(std::string label) override {
    return on_strand(strand_, hold(execution_, execution_->keep(std::move(label))));
  }

 private:
  std::shared_ptr<NativeExecution> execution_;
  asio::any_io_executor strand_;
};

}  // namespace

std::unique_ptr<Execution> share(std::shared_ptr<NativeExecution> execution,
                                 asio::any_io_executor strand) {
  return std::make_unique<SharedExecution>(std::move(execution), std::move(strand));
}

}  // namespace asr
