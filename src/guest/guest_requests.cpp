// What the daemon may ask of pid 1, and how it is answered.
#include <signal.h>
#include <sys/statfs.h>

#include "frozen/image.hpp"
#include "guest/guest_loop.hpp"
#include "guest/process_table.hpp"

namespace asr {

Result<void> Guest::start(std::uint32_t id, const wire::Start& request,
                          std::vector<UniqueFd>& fds) {
  User user = TRY(accounts_.find(request.user));
  if (request.layers > frozen::kMostLayers ||
      fds.size() != (request.layers > 0 ? request.layers + 1U : 0U))
    return fail(Errc::invalid, "no image to start from");
  Frozen frozen;
  if (request.layers > 0) {
    frozen.thaw = std::move(fds[0]);
    for (std::size_t i = 1; i < fds.size(); ++i) frozen.layers.push_back(std::move(fds[i]));
  }
  StartedProgram program = TRY(programs_.start(id, request, user, frozen));
  wire::Started started;
  started.pid = program.pid;
  TRY(answer(id, started, std::move(program.ends)));
  if (!program.terminal_master) return {};
  int relay = ::_Fork();
  if (relay == 0) {
    outbox_.drop();  // The daemon's end may still be in there, and the relay must see it close.
    refusals_.drop();
    (void)take_rights(As::guest, {});
    relay_terminal(std::move(program.terminal_master), std::move(program.terminal_peer));
    ::_exit(0);
  }
  if (relay > 0) {
    stocktaker_.started_own();
    workers_[relay] = {.relays = id};
  }
  return {};
}

Result<void> Guest::file(std::uint32_t id, const wire::File& request, std::vector<UniqueFd>& fds) {
  switch (request.op) {
    case wire::FileOp::watch:
      return in_worker({.request = id, .watches = true}, As::user, request.user,
                       [&](const Work& work) { return work_on_watch(work, request); });
    case wire::FileOp::archive_out:
      return in_worker({.request = id}, As::user, request.user,
                       [&](const Work& work) { return work_on_archive_out(work, request); });
    case wire::FileOp::archive_in:
      if (fds.size() != 1) return fail(Errc::invalid, "no archive");
      return in_worker({.request = id}, As::user, request.user, [&](const Work& work) {
        return work_on_archive_in(work, request, std::move(fds[0]));
      });
    case wire::FileOp::write:
      if (fds.size() != 1) return fail(Errc::invalid, "nothing to write");
      return in_worker({.request = id}, As::user, request.user, [&](const Work& work) {
        return work_on_write(work, request, std::move(fds[0]));
      });
    case wire::FileOp::changes:
    case wire::FileOp::save:
    case wire::FileOp::restore:
      return written_files(id, request.op, fds);
    case wire::FileOp::open_before:
      return in_worker({.request = id}, As::keeper_of_files, "", [&](const Work& work) {
        return work_on_before(work, request, config_.scratch);
      });
    case wire::FileOp::change_owner: {
      User owner = TRY(accounts_.find(request.other));
      wire::File told = request;
      told.cursor = static_cast<std::uint64_t>(owner.uid) << 32U | owner.gid;
      return in_worker({.request = id}, As::user, request.user,
                       [&](const Work& work) { return work_on_files(work, told); });
    }
    default:
      return in_worker({.request = id}, As::user, request.user,
                       [&](const Work& work) { return work_on_files(work, request); });
  }
}

int Guest::take_rights(As as, const User& who) const noexcept {
  // Only whoever works on all files has a use for these.
  if (as == As::keeper_of_files) return become_keeper_of_files(config_);
  for (int fd : config_.scratch.descriptors) ::close(fd);
  return as == As::user ? become(config_, who) : 0;
}

Result<void> Guest::written_files(std::uint32_t id, wire::FileOp op, std::vector<UniqueFd>& fds) {
  const Scratch& scratch = config_.scratch;
  if (scratch.trees.empty())
    return fail(Errc::unsupported, "this sandbox keeps apart nothing of what is written");
  if (op == wire::FileOp::restore && fds.size() != 1)
    return fail(Errc::invalid, "nothing to restore");
  return in_worker({.request = id}, As::keeper_of_files, "", [&](const Work& work) {
    if (op == wire::FileOp::changes) return work_on_changes(work, scratch);
    if (op == wire::FileOp::save)
      return work_on_saving(work, scratch, fds.empty() ? UniqueFd() : std::move(fds[0]));
    return work_on_restoring(work, scratch, std::move(fds[0]));
  });
}

Result<void> Guest::list_processes(std::uint32_t id) {
  std::vector<std::int32_t> hidden;
  for (const auto& [pid, worker] : workers_) hidden.push_back(pid);
  return in_worker({.request = id}, As::guest, "", [&](const Work& work) -> Result<void> {
    hidden.push_back(::getpid());
    std::vector<wire::Process> all = describe_processes(hidden);
    // A few per frame: a command line has at most 4 KiB.
    constexpr std::size_t kPerFrame = 16;
    for (std::size_t from = 0; from < all.size() || from == 0; from += kPerFrame) {
      wire::Processes page;
      std::size_t to = std::min(all.size(), from + kPerFrame);
      page.processes.assign(all.begin() + static_cast<std::ptrdiff_t>(from),
                            all.begin() + static_cast<std::ptrdiff_t>(to));
      page.more = to < all.size();
      TRY(work.answer(page));
      if (!page.more) break;
    }
    return {};
  });
}

Result<void> Guest::disk_usage(std::uint32_t id) {
  struct statfs info {};
  // An overlay tells of its upper layer.
  if (::statfs(config_.disk ? "/" : "/dev/shm", &info) != 0) return fail_errno("statfs");
  wire::Disk disk;
  auto block = static_cast<std::uint64_t>(info.f_bsize);
  disk.limit_bytes = info.f_blocks * block;
  disk.used_bytes = (info.f_blocks - info.f_bfree) * block;
  disk.used_inodes = info.f_files - info.f_ffree;
  return answer(id, disk);
}

Result<void> Guest::known_executions(std::uint32_t id) {
  for (const auto& [pid, worker] : workers_)
    if (worker.watches) ::kill(pid, SIGKILL);
  egress_.reset();
  wire::Executions known;
  known.ids = programs_.ids();
  return answer(id, known);
}

Result<void> Guest::take_stock(std::uint32_t id, const wire::TakeStock& request) {
  constexpr std::size_t kMostStocks = 16;
  while (stocks_.size() >= kMostStocks) stocks_.erase(stocks_.begin());  // Nobody asks any more.
  stocks_[id] = stocktaker_.take(request.process);
  return answer(id, wire::Done{});
}

Result<void> Guest::tell_effects(std::uint32_t id, const wire::TellEffects& request) {
  auto found = stocks_.find(request.since);
  if (found == stocks_.end()) return fail(Errc::not_found, "no stock was taken then");
  Stock before = std::move(found->second);
  stocks_.erase(found);
  std::optional<ProcessUse> used;
  if (before.used) used = Stocktaker::use_of(request.process);
  return answer(id, stocktaker_.since(before, used));
}

Result<void> Guest::dispatch(const Frame& frame, std::vector<UniqueFd>& fds) {
  using wire::GuestType;
  auto malformed = [] { return fail(Errc::internal, "malformed request"); };
  switch (static_cast<GuestType>(frame.type)) {
    case GuestType::start:
      if (auto request = decode<wire::Start>(frame)) return start(frame.id, *request, fds);
      return malformed();
    case GuestType::file:
      if (auto request = decode<wire::File>(frame)) return file(frame.id, *request, fds);
      return malformed();
    case GuestType::ping:
      return answer(frame.id, wire::Done{});
    case GuestType::signal_execution:
      if (auto request = decode<wire::SignalExecution>(frame)) {
        TRY(programs_.signal(request->execution, request->signal));
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::signal_process:
      if (auto request = decode<wire::SignalProcess>(frame)) {
        if (request->pid <= 1) return fail(Errc::invalid, "no such process");
        if (::kill(request->pid, request->signal) != 0) return fail_errno("kill");
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::resize:
      if (auto request = decode<wire::Resize>(frame)) {
        TRY(programs_.resize(request->execution, request->rows, request->columns));
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    case GuestType::kill_all:
      // Everything but ourselves: that is what -1 means to a pid 1.
      if (::kill(-1, SIGKILL) != 0 && errno != ESRCH) return fail_errno("kill");
      return answer(frame.id, wire::Done{});
    case GuestType::connect:
      if (auto request = decode<wire::Connect>(frame))
        return in_worker({.request = frame.id}, As::guest, "",
                         [&](const Work& work) { return work_on_connection(work, request->port); });
      return malformed();
    case GuestType::known_executions:
      return known_executions(frame.id);
    case GuestType::list_processes:
      return list_processes(frame.id);
    case GuestType::disk_usage:
      return disk_usage(frame.id);
    case GuestType::take_stock:
      if (auto request = decode<wire::TakeStock>(frame)) return take_stock(frame.id, *request);
      return malformed();
    case GuestType::tell_effects:
      if (auto request = decode<wire::TellEffects>(frame)) return tell_effects(frame.id, *request);
      return malformed();
    case GuestType::skip_time:
      if (auto request = decode<wire::SkipTime>(frame)) {
        programs_.skip(request->time);
        return {};
      }
      return malformed();
    case GuestType::accept_more:
      if (auto request = decode<wire::AcceptMore>(frame)) {
        egress_.accept_more(request->count);
        return {};
      }
      return malformed();
    case GuestType::stop_work:
      if (auto request = decode<wire::StopWork>(frame)) {
        for (const auto& [pid, worker] : workers_)
          if (worker.request == request->work) ::kill(pid, SIGKILL);
        return answer(frame.id, wire::Done{});
      }
      return malformed();
    default:
      return fail(Errc::internal, "unknown request");
  }
}

}  // namespace asr
