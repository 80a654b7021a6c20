// Everything that must survive `kill -9` of the server. Knows nothing of HTTP, of sandboxes or of
// what is in the JSON it keeps.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "store/commit_queue.hpp"
#include "store/job.hpp"
#include "store/secret_box.hpp"
#include "store/sqlite.hpp"
#include "store/state_folder.hpp"

namespace asr {

// May be used from any thread. The loops whose coroutines wait here outlive the store.
class Store {
 public:
  // Makes what is missing in the folder. Refuses a folder that others may enter, that another
  // server uses, whose database is damaged or newer than this program, or whose parts do not belong
  // together.
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& folder);

  // `work` is called with a Database&, here or on the store's thread, and returns a Result, which
  // is given back once it is safe. All of it is done, or nothing when it fails. It must not wait
  // for the store. Name the work on a line of its own before the co_await.
  template <class Work>
  boost::asio::awaitable<WorkResult<Work>> write(Work work,
                                                 Durability durability = Durability::process) {
    return submit(JobKind::write, durability, Urgency::now, std::move(work));
  }

  // For what was not promised to anybody yet: it may take some milliseconds longer, and shares its
  // commit with others.
  template <class Work>
  boost::asio::awaitable<WorkResult<Work>> write_soon(Work work) {
    return submit(JobKind::write, Durability::process, Urgency::soon, std::move(work));
  }

  // Sees what is committed, and no half of it. Work that writes fails.
  template <class Work>
  boost::asio::awaitable<WorkResult<Work>> read(Work work) {
    return submit(JobKind::read, Durability::process, Urgency::now, std::move(work));
  }

  // A write that blocks: for the start of the server and the command line.
  template <class Work>
  WorkResult<Work> run(Work work, Durability durability = Durability::process) {
    if (queue_.is_at_work_here())
      return fail(Errc::internal, "work of the store must not wait for the store");
    auto job = std::make_unique<BlockingJob<Work>>(JobKind::write, durability, std::move(work));
    auto result = job->result();
    queue_.submit(std::move(job));
    return result.get();
  }

  const SecretBox& secrets() const noexcept { return *secrets_; }

  // What the operator should hear of: damage that was found when the store was opened and did not
  // prevent it.
  const std::vector<std::string>& notices() const noexcept { return notices_; }

 private:
  Store(StateFolder folder, std::unique_ptr<Database> database, std::unique_ptr<SecretBox> secrets,
        std::vector<std::string> notices);

  template <class Work>
  auto submit(JobKind kind, Durability durability, Urgency urgency, Work work) {
    auto start = [this, kind, durability, urgency](auto handler, Work what) {
      using Handler = decltype(handler);
      auto job = std::make_unique<AwaitedJob<Work, Handler>>(kind, durability, std::move(what),
                                                             std::move(handler));
      queue_.submit(std::move(job), urgency);
    };
    return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>,
                                       void(std::exception_ptr, WorkResult<Work>)>(
        std::move(start), boost::asio::use_awaitable, std::move(work));
  }

  StateFolder folder_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<SecretBox> secrets_;
  std::vector<std::string> notices_;
  CommitQueue queue_;
};

}  // namespace asr
