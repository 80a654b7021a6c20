#include "provider/e2b/run.hpp"

#include <signal.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "provider/e2b/execution.hpp"

namespace asr::e2b {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Stream = OutputChunk::Stream;

namespace {

constexpr std::size_t kMostAhead = 1 << 20;  // of output that nobody has read yet
constexpr auto kReconnectFor = 30s;
constexpr std::string_view kGap =
    "agent-sandbox: the connection to the provider broke; output may be missing here\n";

ExitStatus status_of(const Run& run, int code, int signal) {
  ExitStatus status;
  status.reason = signal != 0 ? EndReason::signaled : EndReason::exited;
  status.signal = signal;
  status.exit_code = signal != 0 ? 128 + signal : code & 0xff;
  if (run.cpu_limited && (signal == SIGXCPU || code == 128 + SIGXCPU))
    status.reason = EndReason::cpu_time;
  return status;
}

// Hands one piece on, as far as it may be; waits while nobody reads.
asio::awaitable<void> deliver(RunPtr run, OutputChunk chunk) {
  if (chunk.stream != Stream::reply) {
    std::uint64_t before = run->output_bytes;
    run->output_bytes += chunk.data.size();
    if (run->most_output > 0 && run->output_bytes > run->most_output) {
      chunk.data.resize(before >= run->most_output ? 0 : run->most_output - before);
      if (run->overflow == OutputOverflow::kill)
        asio::co_spawn(run->core->remote->executor(), end_program(run, EndReason::output_limit),
                       asio::detached);
    }
  }
  if (chunk.data.empty() || run->nobody_reads || run->closed.contains(chunk.stream)) co_return;
  run->ahead_bytes += chunk.data.size();
  run->ahead.push_back(std::move(chunk));
  run->changed.ring();
  while (run->ahead_bytes > kMostAhead && !run->nobody_reads && !run->dropped)
    co_await run->changed.wait();
}

// What is not the word that it could not be started; nothing as long as it may become that.
asio::awaitable<void> deliver_output(RunPtr run, OutputChunk chunk) {
  if (run->output_bytes == 0) {
    std::string so_far = (run->held ? run->held->data : "") + chunk.data;
    if ((run->nonce + "\n").starts_with(so_far)) {
      run->held = OutputChunk{chunk.stream, std::move(so_far)};
      co_return;
    }
  }
  if (auto held = std::exchange(run->held, std::nullopt)) {
    auto delivering = deliver(run, *std::move(held));
    co_await std::move(delivering);
  }
  auto delivering = deliver(run, std::move(chunk));
  co_await std::move(delivering);
}

// Pieces of a program with a socket for stdin. False: its channel is broken.
asio::awaitable<bool> deliver_lines(RunPtr run, std::string data) {
  if (!run->lines.feed(data)) co_return false;
  for (;;) {
    auto line = run->lines.next();
    if (!line) co_return false;
    if (!*line) co_return true;
    if ((*line)->kind == BothWays::Line::Kind::output) {
      auto delivering = deliver(run, std::move((*line)->chunk));
      co_await std::move(delivering);
      continue;
    }
    int number = (*line)->number;
    ExitStatus status = status_of(*run, number < 0 ? 0 : number, number < 0 ? -number : 0);
    if ((*line)->kind == BothWays::Line::Kind::not_started) {
      status.reason = EndReason::not_started;
      status.start_errno = number;
      status.exit_code = number == EACCES ? 126 : 127;
    }
    finish(*run, status);
    co_return true;
  }
}

ExitStatus end_of(const Run& run, const ProcessEvent& event) {
  ExitStatus status = status_of(run, event.exit_code, event.signal);
  bool said_so = event.exit_code == 127 && run.held && run.held->data == run.nonce + "\n";
  // Nobody without our helper's interpreter can be given an interpreter of ours.
  if (said_so || (run.both_ways && event.exit_code == 127)) {
    status.reason = EndReason::not_started;
    status.start_errno = ENOENT;
  }
  return status;
}

}  // namespace

void finish(Run& run, ExitStatus status) {
  if (run.status) return;
  status.wall = Clock::now() - run.began;
  status.truncated_bytes = run.most_output > 0 && run.output_bytes > run.most_output
                               ? run.output_bytes - run.most_output
                               : 0;
  if (run.killed_for && status.reason != EndReason::sandbox_gone) status.reason = *run.killed_for;
  if (status.reason == EndReason::wall_time || status.reason == EndReason::cpu_time ||
      status.reason == EndReason::output_limit || status.reason == EndReason::sandbox_gone ||
      status.reason == EndReason::lost) {
    status.signal = SIGKILL;
    status.exit_code = 128 + SIGKILL;
  }
  run.status = status;
  if (!run.label.get().empty()) run.core->kept.remove(run.tag);
  run.changed.ring();
}

asio::awaitable<void> end_program(RunPtr run, EndReason why) {
  if (run->status || run->killed_for) co_return;
  run->killed_for = why;
  auto killing = signal_tree(run->core, run->pid, SIGKILL);
  auto killed = co_await std::move(killing);
  if (killed) co_return;
  json::object body = run->selector();
  body["signal"] = "SIGNAL_SIGKILL";
  auto asking = ask(run->core, "process.Process/SendSignal", std::move(body), "");
  (void)co_await std::move(asking);
}

asio::awaitable<bool> reconnect(RunPtr run) {
  auto until = Clock::now() + kReconnectFor;
  Clock::duration pause = 200ms;
  while (!run->dropped && run->core->state != SandboxState::gone) {
    if (run->core->state == SandboxState::paused) {  // Streams end there; it goes on later.
      co_await run->core->changed.wait();
      until = Clock::now() + kReconnectFor;
      continue;
    }
    auto opening = run->core->remote->stream(run->core->place, "process.Process/Connect",
                                             run->selector(), run->user);
    auto stream = co_await std::move(opening);
    if (stream) {
      auto reading = (*stream)->next();
      auto first = co_await std::move(reading);
      if (first && *first) {
        run->stream = std::move(*stream);
        run->lines.skip_to_next_line();
        co_return true;
      }
      if (!first && first.error().code == Errc::not_found) co_return false;
    } else if (stream.error().code == Errc::not_found) {
      co_return false;
    } else {
      auto looking = Core::look(run->core, stream.error());
      (void)co_await std::move(looking);
    }
    if (Clock::now() > until) co_return false;
    co_await run->changed.wait(Clock::now() + pause);
    pause = std::min<Clock::duration>(2 * pause, 5s);
  }
  co_return false;
}

asio::awaitable<void> follow(RunPtr run) {
  // Whoever started it hears of that first.
  co_await asio::post(run->core->remote->executor(), asio::use_awaitable);
  while (!run->dropped && !run->status) {
    auto reading = run->stream->next();
    auto message = co_await std::move(reading);
    if (run->dropped) co_return;
    Result<ProcessEvent> event = !message    ? Result<ProcessEvent>(fail(message.error()))
                                 : !*message ? Result<ProcessEvent>(fail(Errc::provider, "no end"))
                                             : process_event_in(**message);
    if (event && event->kind == ProcessEvent::Kind::end) {
      ExitStatus status = end_of(*run, *event);
      if (auto held = std::exchange(run->held, std::nullopt);
          held && status.reason != EndReason::not_started) {
        auto delivering = deliver(run, *std::move(held));
        co_await std::move(delivering);
      }
      finish(*run, status);
      co_return;
    }
    if (event && event->kind == ProcessEvent::Kind::data) {
      if (!run->both_ways) {
        auto delivering = deliver_output(run, std::move(event->chunk));
        co_await std::move(delivering);
        continue;
      }
      if (event->chunk.stream == Stream::err) continue;  // the helper's own complaints
      auto delivering = deliver_lines(run, std::move(event->chunk.data));
      bool sound = co_await std::move(delivering);
      if (sound) continue;
      auto ending = end_program(run, EndReason::lost);
      co_await std::move(ending);
      finish(*run, {});
      co_return;
    }
    if (event) continue;
    bool broke = run->stream->is_broken() || run->core->state == SandboxState::paused ||
                 (message && !*message);
    if (!broke) {
      // The other side has its own limits, or talks nonsense.
      ExitStatus ended;
      bool late = !message && message.error().code == Errc::timeout;
      ended.reason = late ? EndReason::wall_time : EndReason::lost;
      auto ending = end_program(run, ended.reason);
      co_await std::move(ending);
      finish(*run, ended);
      co_return;
    }
    auto reconnecting = reconnect(run);
    if (!co_await std::move(reconnecting)) {
      ExitStatus lost;
      lost.reason =
          run->core->state == SandboxState::gone ? EndReason::sandbox_gone : EndReason::lost;
      finish(*run, lost);
      co_return;
    }
    if (!run->both_ways && !run->terminal) {
      auto telling = deliver(run, {Stream::err, std::string(kGap)});
      co_await std::move(telling);
    }
  }
}

asio::awaitable<void> watch_time(std::weak_ptr<Run> weak, std::chrono::milliseconds time) {
  auto executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor);
  auto left = std::chrono::duration_cast<Clock::duration>(time);
  while (left > Clock::duration(0)) {
    auto step = std::min<Clock::duration>(left, 500ms);
    timer.expires_after(step);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    auto run = weak.lock();
    if (!run || run->status) co_return;
    if (run->core->state != SandboxState::paused) left -= step;
  }
  if (auto run = weak.lock()) {
    auto ending = end_program(run, EndReason::wall_time);
    co_await std::move(ending);
  }
}

}  // namespace asr::e2b
