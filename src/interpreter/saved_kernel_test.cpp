#include "interpreter/saved_kernel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <deque>

#include "frozen/programs.hpp"

namespace asr {
namespace {

constexpr std::uint64_t kRequest = 7;

// An interpreter that says what it was told to, and hears what it is sent.
class Parrot final : public Execution {
 public:
  std::deque<std::string> says;  // one for each thing it hears
  std::vector<std::string> heard;
  bool takes_descriptors = true;

  std::int32_t pid() const noexcept override { return 1; }
  std::string label() const override { return {}; }
  asio::awaitable<Result<std::optional<OutputChunk>>> read() override {
    if (ready_.empty()) co_return std::optional<OutputChunk>();
    OutputChunk chunk{OutputChunk::Stream::reply, std::move(ready_.front())};
    ready_.pop_front();
    co_return std::optional<OutputChunk>(std::move(chunk));
  }
  asio::awaitable<Result<void>> write_stdin(std::string data) override {
    hear(data.substr(0, data.find(' ')));
    co_return Result<void>();
  }
  asio::awaitable<Result<void>> send_descriptor(UniqueFd descriptor) override {
    if (!takes_descriptors) co_return fail(Errc::exhausted, "no room for descriptors");
    hear("descriptor");
    last_ = std::move(descriptor);
    co_return Result<void>();
  }
  asio::awaitable<Result<void>> close_stdin() override { return nothing(); }
  asio::awaitable<Result<void>> close_output(OutputChunk::Stream) override { return nothing(); }
  asio::awaitable<Result<void>> signal(int) override { return nothing(); }
  asio::awaitable<Result<void>> resize(TerminalSize) override { return nothing(); }
  asio::awaitable<Result<void>> keep(std::string) override { return nothing(); }
  asio::awaitable<Result<ExitStatus>> wait() override { co_return ExitStatus(); }

 private:
  static asio::awaitable<Result<void>> nothing() { co_return Result<void>(); }
  void hear(std::string what) {
    heard.push_back(std::move(what));
    if (says.empty()) return;
    ready_.push_back(std::move(says.front()));
    says.pop_front();
  }

  std::deque<std::string> ready_;
  UniqueFd last_;
};

class SavingKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (frozen::thaw_program().empty()) GTEST_SKIP() << "nothing can be frozen here";
  }
  Result<SavedKernel> save() {
    auto talk = std::make_shared<KernelTalk>(KernelTalk{parrot_, {}, nullptr});
    asio::io_context context;
    auto saving = asio::co_spawn(context, save_kernel(talk, kRequest), asio::use_future);
    context.run();
    return saving.get();
  }
  static std::string event(const std::string& name, const std::string& more = {}) {
    return "{\"event\":\"" + name + "\",\"id\":" + std::to_string(kRequest) + more + "}\n";
  }

  std::shared_ptr<Parrot> parrot_ = std::make_shared<Parrot>();
};

TEST_F(SavingKernels, AFileThatCannotBeSentLeavesNobodyWaiting) {
  parrot_->says = {event("saving"), event("saved", ",\"problem\":\"no file to write to\"")};
  parrot_->takes_descriptors = false;
  auto saved = save();
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().what, "no room for descriptors");
  EXPECT_EQ(parrot_->heard, (std::vector<std::string>{"save", "."}));
}

TEST_F(SavingKernels, WhatCannotBeSavedIsSentNothing) {
  parrot_->says = {event("saved", ",\"problem\":\"it shares memory\"")};
  auto saved = save();
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().code, Errc::unsupported);
  EXPECT_EQ(parrot_->heard, (std::vector<std::string>{"save"}));
}

TEST_F(SavingKernels, WhoSaysSoWithoutWritingIsNotBelieved) {
  parrot_->says = {event("saving"), event("saved")};
  auto saved = save();
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().what, "it wrote no image");
}

}  // namespace
}  // namespace asr
