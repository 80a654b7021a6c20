// One engine on several threads, everything at once. Meant for the thread sanitizer as much as for
// its results.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <set>
#include <thread>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

class Concurrency : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.runtime_dir = scratch_.path() / "run";
    options.cache_dir = scratch_.path() / "cache";
    auto engine = Engine::start(context_.get_executor(), options);
    ASSERT_TRUE(succeeded(engine));
    engine_ = *std::move(engine);
    for (int i = 0; i < 4; ++i) threads_.emplace_back([this] { context_.run(); });
  }
  void TearDown() override {
    if (engine_) EXPECT_TRUE(succeeded(begin(engine_->stop()).get()));
    engine_.reset();
    guard_.reset();
    for (std::thread& thread : threads_) thread.join();
  }
  template <class T>
  std::future<T> begin(asio::awaitable<T> work) {
    return asio::co_spawn(context_, std::move(work), asio::use_future);
  }

  ScratchDir scratch_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> guard_ =
      asio::make_work_guard(context_);
  std::vector<std::thread> threads_;
  std::unique_ptr<Engine> engine_;
};

// One life, with some of everything in it.
asio::awaitable<Result<std::string>> live(Engine* engine, int number) {
  auto creating = engine->create(spec_of(Preset::standard));
  auto box = CO_TRY(co_await std::move(creating));
  std::string text = "number " + std::to_string(number);
  CO_TRY(co_await box->write_file("/workspace/f", text));
  auto running = box->run(shell("cat f; cat"), " and input");
  auto result = CO_TRY(co_await std::move(running));
  auto starting = box->start(shell("echo left alone; sleep 100"));
  auto execution = CO_TRY(co_await std::move(starting));
  CO_TRY(co_await execution->read());
  if (number % 3 == 0) execution.reset();
  auto watch = CO_TRY(co_await box->watch("/workspace"));
  CO_TRY(co_await box->write_file("/workspace/g", text));
  CO_TRY(co_await watch->next());
  CO_TRY(co_await box->usage());
  CO_TRY(co_await box->processes());
  std::string id = box->id().text;
  if (result.out != text + " and input")
    co_return fail(Errc::internal, "wrong output: " + result.out);
  if (number % 2 == 0) CO_TRY(co_await box->destroy());
  co_return id;
}

TEST_F(Concurrency, HundredLivesOnFourThreads) {
  std::vector<std::future<Result<std::string>>> lives;
  for (int i = 0; i < 100; ++i) lives.push_back(begin(live(engine_.get(), i)));
  std::set<std::string> ids;
  for (auto& one : lives) {
    auto id = one.get();
    EXPECT_TRUE(succeeded(id));
    if (id) EXPECT_TRUE(ids.insert(*id).second);
  }
}

// The same sandbox from everywhere, and its end in the middle of it.
TEST_F(Concurrency, OneSandboxOnFourThreads) {
  auto box = begin(engine_->create(spec_of(Preset::standard))).get();
  ASSERT_TRUE(succeeded(box));
  std::vector<std::future<Result<RunResult>>> runs;
  for (int i = 0; i < 100; ++i)
    runs.push_back(begin((*box)->run(shell("echo x; echo y >&2"), "in")));
  for (auto& one : runs) {
    auto result = one.get();
    ASSERT_TRUE(succeeded(result));
    EXPECT_EQ(result->out, "x\n");
  }
  for (int i = 0; i < 20; ++i)
    runs[static_cast<std::size_t>(i)] = begin((*box)->run(shell("sleep 100")));
  auto end = begin((*box)->destroy());
  auto again = begin((*box)->destroy());
  EXPECT_TRUE(succeeded(end.get()));
  EXPECT_TRUE(succeeded(again.get()));
  for (int i = 0; i < 20; ++i) {
    auto result = runs[static_cast<std::size_t>(i)].get();
    if (result)
      EXPECT_EQ(result->status.reason, EndReason::sandbox_gone);
    else
      EXPECT_EQ(result.error().code, Errc::gone);
  }
}

TEST_F(Concurrency, PoolOnFourThreads) {
  SandboxSpec spec = spec_of(Preset::standard);
  ASSERT_TRUE(succeeded(begin(engine_->warm(spec, {.size = 6, .refill_at_once = 3})).get()));
  std::vector<std::future<Result<SandboxPtr>>> made;
  for (int i = 0; i < 60; ++i) made.push_back(begin(engine_->create(spec)));
  std::set<std::string> ids;
  for (auto& one : made) {
    auto box = one.get();
    ASSERT_TRUE(succeeded(box));
    EXPECT_TRUE(ids.insert((*box)->id().text).second);
    (void)engine_->pools();
  }
  EXPECT_TRUE(succeeded(begin(engine_->drain(spec)).get()));
}

}  // namespace
}  // namespace asr::test
