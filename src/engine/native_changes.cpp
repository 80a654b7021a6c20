// The part of a native sandbox that tells what was written in it, saves that, and begins with what
// another one has saved.
#include "engine/native_sandbox.hpp"
#include "engine/told_changes.hpp"
#include "os/memory_file.hpp"

namespace asr {

namespace {

wire::File whole_sandbox(wire::FileOp op) {
  wire::File request;
  request.op = op;
  return request;
}

asio::awaitable<Result<Changes>> find_changes(std::shared_ptr<Channel> channel) {
  auto box = channel->box();
  CO_TRY(channel->send(box->id(), whole_sandbox(wire::FileOp::changes)));
  ToldChanges told;
  for (;;) {
    Letter letter = CO_TRY(co_await box->next(Channel::Clock::now() + kWorkWithin));
    auto list = letter.as<wire::ChangeList>();
    if (!list) co_return fail(failure_in(letter));
    bool more = list->more;
    CO_TRY(told.add(*std::move(list)));
    if (!more) co_return told.take();
  }
}

}  // namespace

asio::awaitable<Result<Changes>> NativeSandbox::changes() {
  CO_TRY(check_ready());
  auto self = shared_from_this();
  auto finding = find_changes(birth_.channel);
  co_return co_await on_strand(strand(), std::move(finding));
}

asio::awaitable<Result<UniqueFd>> NativeSandbox::save_files(std::vector<std::string> only) {
  std::vector<UniqueFd> fds;
  if (!only.empty()) {  // There may be more of them than a message holds.
    MemoryFile list = CO_TRY(MemoryFile::make("paths"));
    for (const std::string& path : only) CO_TRY(list.append({path.c_str(), path.size() + 1}));
    fds.push_back(CO_TRY(list.seal()));
  }
  auto asking = request(whole_sandbox(wire::FileOp::save), std::move(fds));
  Letter answer = CO_TRY(co_await std::move(asking));
  co_return pipe_in(std::move(answer));
}

asio::awaitable<Result<Sandbox::ArchiveReport>> NativeSandbox::restore_files(UniqueFd tar) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(tar));
  auto asking = request(whole_sandbox(wire::FileOp::restore), std::move(fds));
  Letter answer = CO_TRY(co_await std::move(asking));
  auto done = answer.as<wire::ArchiveDone>();
  if (!done) co_return fail(failure_in(answer));
  co_return ArchiveReport{done->entries, done->skipped, std::move(done->reasons)};
}

}  // namespace asr
