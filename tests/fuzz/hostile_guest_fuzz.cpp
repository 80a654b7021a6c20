// The daemon's side of a sandbox whose pid 1 has gone over to the workload: asks it for everything
// a sandbox can do, and gets the fuzzer's answers, descriptors of every wrong kind among them.
//
// What must hold: no crash, every wait ends once the peer is gone, and no descriptor is left open.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/native_sandbox.hpp"
#include "wire/guest_messages.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;

constexpr int kMostSteps = 64;

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// One descriptor of each kind a guest could have, made once.
const std::vector<int>& kinds() {
  static const std::vector<int> fds = [] {
    std::vector<int> made;
    int pair[2];
    for (bool with_data : {false, true}) {
      if (::pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
      if (with_data && ::write(pair[1], "output", 6) != 6) std::abort();
      made.insert(made.end(), {pair[0], pair[1]});
    }
    int file = ::memfd_create("file", MFD_CLOEXEC);
    if (::write(file, "content", 7) != 7) std::abort();
    made.push_back(file);
    for (int type : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
      if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
      made.insert(made.end(), {pair[0], pair[1]});
    }
    made.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    made.push_back(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    made.push_back(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    made.push_back(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    made.push_back(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
    std::string fifo = "/tmp/asr-fuzz-fifo-" + std::to_string(::getpid());
    if (::mkfifo(fifo.c_str(), 0600) != 0) std::abort();
    made.push_back(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ::unlink(fifo.c_str());
    for (int fd : made)
      if (fd < 0) std::abort();
    return made;
  }();
  return fds;
}

class Game {
 public:
  explicit Game(FuzzedDataProvider& input) : input_(input) {
    auto pair = seqpacket_pair();
    if (!pair) std::abort();
    peer_ = std::move(pair->second);
    Birth birth;
    birth.id = SandboxId("fuzz");
    birth.channel = std::make_shared<Channel>(asio::make_strand(context_), std::move(pair->first));
    birth.cgroups = Cgroups::none();
    birth.spec.network = Network::proxied;
    sandbox_ = std::make_shared<NativeSandbox>(std::move(birth), [](Remains) {});
    if (input_.ConsumeBool())
      sandbox_->begin();
    else
      adopt();
  }

  void play() {
    for (int step = 0; step < kMostSteps && input_.remaining_bytes() > 0; ++step) {
      switch (input_.ConsumeIntegralInRange(0, 3)) {
        case 0:
          ask();
          break;
        case 1:
          answer();
          break;
        case 2:
          garbage();
          break;
        default:
          context_.poll();
          break;
      }
    }
    context_.poll();
    peer_.reset();
    watch_.reset();
    execution_.reset();
    // Whatever the guest said, once it is gone every question has its answer.
    auto until = std::chrono::steady_clock::now() + 2s;
    context_.restart();
    while (asked_ > 0 && std::chrono::steady_clock::now() < until) context_.run_one_for(10ms);
    if (asked_ > 0) {
      std::fprintf(stderr, "%d questions never got an answer\n", asked_);
      std::abort();
    }
    sandbox_.reset();
    context_.restart();
    context_.poll();
  }

 private:
  // As if an earlier daemon had kept it, with a program.
  void adopt() {
    NativeSandbox::KeptExecution program;
    program.record.id = input_.ConsumeIntegralInRange<std::uint32_t>(1, 24);
    program.record.has_out = true;
    program.fds.emplace_back(::fcntl(kinds()[0], F_DUPFD_CLOEXEC, 3));
    std::vector<NativeSandbox::KeptExecution> programs;
    programs.push_back(std::move(program));
    SandboxRecord record;
    record.id = "fuzz";
    sandbox_->resume_life(record, std::move(programs));
    auto executions = sandbox_->adopted_executions();
    if (!executions.empty()) execution_ = std::move(executions[0]);
  }

  template <class T, class Use>
  void spawn(asio::awaitable<Result<T>> work, Use use) {
    ++asked_;
    asio::co_spawn(context_, std::move(work),
                   [this, use](std::exception_ptr failure, Result<T> result) {
                     --asked_;
                     if (failure) std::rethrow_exception(failure);
                     if (result) use(*result);
                   });
  }
  template <class T>
  void spawn(asio::awaitable<Result<T>> work) {
    ++asked_;
    asio::co_spawn(context_, std::move(work), [this](std::exception_ptr failure, Result<T>) {
      --asked_;
      if (failure) std::rethrow_exception(failure);
    });
  }

  Command command() {
    Command made;
    made.argv = {"/bin/x"};
    std::uint8_t flags = input_.ConsumeIntegral<std::uint8_t>();
    if ((flags & 1) != 0) made.stdin_mode = StdinMode::pipe;
    if ((flags & 2) != 0) made.terminal = TerminalSize{};
    if ((flags & 4) != 0) made.output_bytes = 3;
    if ((flags & 8) != 0) made.overflow = OutputOverflow::truncate;
    return made;
  }

  void ask() {
    switch (input_.ConsumeIntegralInRange(0, 21)) {
      case 0:
        spawn(sandbox_->run(command(), "input"));
        break;
      case 1:
        spawn(sandbox_->start(command()), [this](auto& made) { execution_ = std::move(made); });
        break;
      case 2:
        spawn(sandbox_->processes());
        break;
      case 3:
        spawn(sandbox_->read_file("/x", 1000));
        break;
      case 4:
        spawn(sandbox_->write_file("/x", "data", 0644, "user"));
        break;
      case 5:
        spawn(sandbox_->stat("/x", "user"));
        break;
      case 6:
        spawn(sandbox_->list("/x", 0, 10, "user"));
        break;
      case 7:
        spawn(sandbox_->watch("/x", "user"), [this](auto& made) { watch_ = std::move(made); });
        break;
      case 8:
        if (watch_) spawn(watch_->next());
        break;
      case 9:
        spawn(sandbox_->archive_out("/x", "user"));
        break;
      case 10:
        spawn(
            sandbox_->archive_in("/x", UniqueFd(::fcntl(kinds()[4], F_DUPFD_CLOEXEC, 3)), "user"));
        break;
      case 11:
        spawn(sandbox_->connect(80));
        break;
      case 12:
        spawn(sandbox_->ping());
        break;
      case 13:
        spawn(sandbox_->usage());
        break;
      case 14:
        spawn(sandbox_->kill_all());
        break;
      case 15:
        if (execution_) spawn(execution_->read());
        break;
      case 16:
        if (execution_) spawn(execution_->write_stdin("more"));
        break;
      case 17:
        if (execution_) spawn(execution_->wait());
        break;
      case 18:
        spawn(sandbox_->accept_egress());
        break;
      case 19:
        spawn(sandbox_->changes());
        break;
      case 20:
        spawn(sandbox_->save_files({}));
        break;
      case 21:
        spawn(sandbox_->restore_files(UniqueFd(::fcntl(kinds()[4], F_DUPFD_CLOEXEC, 3))));
        break;
      default:
        break;
    }
  }

  std::uint32_t some_id() {
    return input_.ConsumeBool() ? input_.ConsumeIntegralInRange<std::uint32_t>(0, 24)
                                : input_.ConsumeIntegral<std::uint32_t>();
  }

  std::vector<int> some_descriptors() {
    std::vector<int> fds;
    for (int count = input_.ConsumeIntegralInRange(0, 4); count > 0; --count)
      fds.push_back(kinds()[input_.ConsumeIntegralInRange<std::size_t>(0, kinds().size() - 1)]);
    return fds;
  }

  template <class Message>
  void say(const Message& message) {
    std::uint32_t id = some_id();
    (void)send_message(peer_.get(), id, message, some_descriptors(), Wait::dont_block);
  }

  // Well-formed, whatever it means at this moment.
  void answer() {
    switch (input_.ConsumeIntegralInRange(0, 13)) {
      case 0:
        say(wire::Done{});
        break;
      case 1:
        say(wire::Opened{});
        break;
      case 2: {
        wire::Started started;
        started.pid = input_.ConsumeIntegral<std::int32_t>();
        say(started);
        break;
      }
      case 3: {
        wire::Ended ended;
        ended.exit_code = input_.ConsumeIntegral<std::int32_t>();
        ended.signal = input_.ConsumeIntegral<std::int32_t>();
        ended.stopped = static_cast<wire::Stopped>(input_.ConsumeIntegral<std::uint8_t>());
        ended.cpu_user = std::chrono::microseconds(input_.ConsumeIntegral<std::int64_t>());
        say(ended);
        break;
      }
      case 4: {
        wire::Failure failure;
        failure.code = input_.ConsumeIntegral<std::uint8_t>();
        failure.what = input_.ConsumeRandomLengthString(100);
        say(failure);
        break;
      }
      case 5: {
        wire::Page page;
        page.entries.resize(input_.ConsumeIntegralInRange<std::size_t>(0, 3));
        for (wire::Entry& entry : page.entries) {
          entry.type = static_cast<wire::EntryType>(input_.ConsumeIntegral<std::uint8_t>());
          entry.modified = std::chrono::nanoseconds(input_.ConsumeIntegral<std::int64_t>());
        }
        say(page);
        break;
      }
      case 6: {
        wire::Events events;
        events.events.resize(input_.ConsumeIntegralInRange<std::size_t>(0, 3));
        for (wire::Event& event : events.events)
          event.change = static_cast<wire::Change>(input_.ConsumeIntegral<std::uint8_t>());
        say(events);
        break;
      }
      case 7: {
        wire::Processes processes;
        processes.processes.resize(input_.ConsumeIntegralInRange<std::size_t>(0, 3));
        processes.more = input_.ConsumeBool();
        say(processes);
        break;
      }
      case 8:
        say(wire::ArchiveDone{});
        break;
      case 9:
        say(wire::Info{});
        break;
      case 10:
        say(wire::Disk{});
        break;
      case 11:
        say(wire::Accepted{});
        break;
      case 12: {
        wire::Executions executions;
        executions.ids.resize(input_.ConsumeIntegralInRange<std::size_t>(0, 3));
        for (std::uint32_t& id : executions.ids) id = some_id();
        say(executions);
        break;
      }
      case 13: {
        wire::ChangeList changes;
        changes.entries.resize(input_.ConsumeIntegralInRange<std::size_t>(0, 3));
        for (wire::FileChange& change : changes.entries) {
          change.path = input_.ConsumeRandomLengthString(100);
          change.kind = static_cast<wire::ChangeKind>(input_.ConsumeIntegral<std::uint8_t>());
          change.type = static_cast<wire::EntryType>(input_.ConsumeIntegral<std::uint8_t>());
        }
        changes.more = input_.ConsumeBool();
        say(changes);
        break;
      }
      default:
        break;
    }
  }

  // A header that is right and a body that may not be, or nothing that is a frame at all.
  void garbage() {
    std::string packet;
    if (input_.ConsumeBool()) {
      Writer writer;
      writer(FrameHeader{kWireVersion, input_.ConsumeIntegralInRange<std::uint16_t>(0, 16),
                         some_id()});
      packet = writer.take();
    }
    packet += input_.ConsumeRandomLengthString(200);
    (void)send_packet(peer_.get(), packet, some_descriptors(), Wait::dont_block);
  }

  FuzzedDataProvider& input_;
  asio::io_context context_{1};
  UniqueFd peer_;
  std::shared_ptr<NativeSandbox> sandbox_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Execution> execution_;
  int asked_ = 0;
};

}  // namespace
}  // namespace asr

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ::signal(SIGPIPE, SIG_IGN);  // As in the daemon.
  (void)asr::kinds();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static int round = 0;
  bool counted = ++round % 64 == 0;  // Counting costs more than most inputs.
  auto before = counted ? asr::open_descriptors() : 0;
  {
    FuzzedDataProvider input(data, size);
    asr::Game game(input);
    game.play();
  }
  if (counted && asr::open_descriptors() != before) std::abort();
  return 0;
}
