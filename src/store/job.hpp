// A piece of work on its way to the database, and its result on the way back.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <future>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/result.hpp"
#include "store/sqlite.hpp"

namespace asr {

// What a write survives once it was acknowledged.
enum class Durability {
  process,  // the sudden end of this process
  machine,  // the sudden end of the machine, too; waits for the disk
};

enum class JobKind { read, write };

class Job {
 public:
  Job(JobKind kind, Durability durability) noexcept : kind_(kind), durability_(durability) {}
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  JobKind kind() const noexcept { return kind_; }
  Durability durability() const noexcept { return durability_; }

  // Does the work: nothing, or why it failed and what it changed must be undone.
  virtual const Error* run(Database& database) noexcept = 0;
  // What it did was lost. A failure of its own stays.
  virtual void fail_with(const Error& error) = 0;
  // Hands the result over. The last call.
  virtual void finish() = 0;

 private:
  JobKind kind_;
  Durability durability_;
};

template <class Work>
using WorkResult = std::invoke_result_t<Work&, Database&>;

template <class Work>
class JobOf : public Job {
 public:
  JobOf(JobKind kind, Durability durability, Work work)
      : Job(kind, durability), work_(std::move(work)) {}

  const Error* run(Database& database) noexcept final {
    try {
      result_.emplace((*work_)(database));
    } catch (...) {
      exception_ = std::current_exception();
      result_.emplace(fail(Errc::internal, "the work threw"));
    }
    work_.reset();  // What it captured ends before its owner goes on.
    return result_->has_value() ? nullptr : &result_->error();
  }

  void fail_with(const Error& error) final {
    work_.reset();
    if (!result_ || result_->has_value()) result_.emplace(fail(error));
  }

 protected:
  std::optional<Work> work_;
  std::optional<WorkResult<Work>> result_;
  std::exception_ptr exception_;
};

// For a thread that waits.
template <class Work>
class BlockingJob final : public JobOf<Work> {
 public:
  using JobOf<Work>::JobOf;
  std::future<WorkResult<Work>> result() { return promise_.get_future(); }

  void finish() override {
    if (this->exception_)
      promise_.set_exception(this->exception_);
    else
      promise_.set_value(*std::move(this->result_));
  }

 private:
  std::promise<WorkResult<Work>> promise_;
};

// For a coroutine that waits: it goes on where it came from.
template <class Work, class Handler>
class AwaitedJob final : public JobOf<Work> {
 public:
  AwaitedJob(JobKind kind, Durability durability, Work work, Handler handler)
      : JobOf<Work>(kind, durability, std::move(work)),
        handler_(std::move(handler)),
        guard_(boost::asio::get_associated_executor(handler_)) {}

  void finish() override {
    auto executor = guard_.get_executor();
    // The guard goes along: once the caller's loop has the result, nothing here touches that loop.
    auto go_on = [handler = std::move(handler_), guard = std::move(guard_),
                  exception = this->exception_, result = *std::move(this->result_)]() mutable {
      std::move(handler)(exception, std::move(result));
    };
    // Never from within the call that asked for it.
    boost::asio::post(executor, std::move(go_on));
  }

 private:
  Handler handler_;
  // The caller's loop has nothing else to do while it waits, and must not end for that.
  boost::asio::executor_work_guard<boost::asio::associated_executor_t<Handler>> guard_;
};

}  // namespace asr
