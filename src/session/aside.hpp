// Work that goes on while whoever began it does something else, until he asks what came of it. On
// one thread, or one strand.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <optional>

#include "base/result.hpp"
#include "session/bell.hpp"

namespace asr {

template <class T>
class Aside {
 public:
  Aside(asio::any_io_executor executor, asio::awaitable<Result<T>> work)
      : job_(std::make_shared<Job>(executor)) {
    asio::co_spawn(executor, run(job_, std::move(work)), asio::detached);
  }

  // Once. Nobody needs to: the work comes to its end all the same.
  asio::awaitable<Result<T>> result() { return wait_for(job_); }

 private:
  struct Job {
    explicit Job(asio::any_io_executor executor) : done(std::move(executor)) {}
    std::optional<Result<T>> result;
    Bell done;
  };

  static asio::awaitable<void> run(std::shared_ptr<Job> job, asio::awaitable<Result<T>> work) {
    job->result = co_await std::move(work);
    job->done.ring();
  }

  static asio::awaitable<Result<T>> wait_for(std::shared_ptr<Job> job) {
    while (!job->result) co_await job->done.wait();
    co_return *std::move(job->result);
  }

  std::shared_ptr<Job> job_;
};

}  // namespace asr
