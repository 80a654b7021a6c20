#include "kernel_test.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/unique_fd.hpp"

extern "C" {
extern const unsigned char asr_kernel_tool_begin[];
extern const unsigned char asr_kernel_tool_end[];
std::size_t __attribute__((weak)) __sanitizer_get_current_allocated_bytes();
}

namespace asr::test {

namespace fs = std::filesystem;

UniqueFd in_memory(std::string_view bytes) {
  UniqueFd fd(::memfd_create("bytes", MFD_CLOEXEC));
  for (std::size_t at = 0; at < bytes.size();) {
    ssize_t n = ::write(fd.get(), bytes.data() + at, bytes.size() - at);
    if (n <= 0) throw std::runtime_error("memfd");
    at += static_cast<std::size_t>(n);
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

void Log::add(std::string_view line) {
  std::lock_guard lock(mutex_);
  lines_ += std::string(line) + "\n";
}

bool Log::contains(std::string_view part) const { return text().find(part) != std::string::npos; }

std::string Log::text() const {
  std::lock_guard lock(mutex_);
  return lines_;
}

EngineOptions KernelTest::own_options() {
  EngineOptions options;
  options.runtime_dir = scratch_.path() / "run";
  // Made once for all tests that do not look into it.
  options.cache_dir = scratch_.path().parent_path() / "cache";
  options.zygotes = 1;
  options.log = [log = log_](std::string_view line) { log->add(line); };
  return options;
}

TestEngine& KernelTest::engine() {
  if (!engine_) engine_ = std::make_unique<TestEngine>(options_);
  return *engine_;
}

asio::any_io_executor KernelTest::executor() {
  auto own = []() -> asio::awaitable<asio::any_io_executor> {
    co_return co_await asio::this_coro::executor;
  };
  return engine().wait(own());
}

void KernelTest::give_tool(Sandbox& sandbox) {
  must(sandbox.write_file(kTool, std::string(tool_image()), 0755));
}

SandboxPtr KernelTest::sandbox_with_tool(SandboxSpec spec) {
  SandboxPtr made = sandbox(std::move(spec));
  give_tool(*made);
  return made;
}

RunResult KernelTest::run(Sandbox& sandbox, std::vector<std::string> argv, std::string user) {
  Command command;
  command.argv = std::move(argv);
  command.user = std::move(user);
  return must(sandbox.run(std::move(command)));
}

RunResult KernelTest::sh(Sandbox& sandbox, std::string script, std::string user) {
  return engine().sh(sandbox, std::move(script), std::move(user));
}

namespace {

asio::awaitable<void> gather_output(Execution* execution, std::shared_ptr<std::string> seen,
                                    std::string text, Clock::time_point deadline) {
  while (Clock::now() < deadline) {
    auto chunk = co_await execution->read();
    if (!chunk || !*chunk) co_return;
    seen->append((*chunk)->data);
    if (!text.empty() && seen->find(text) != std::string::npos) co_return;
  }
}

}  // namespace

std::string KernelTest::read_until(Execution& execution, std::string_view text,
                                   std::chrono::milliseconds within) {
  auto seen = std::make_shared<std::string>();
  auto done = begin(gather_output(&execution, seen, std::string(text), Clock::now() + within));
  if (done.wait_for(within) == std::future_status::timeout) {
    // A read without output cannot be abandoned: end the program, so that it returns.
    ADD_FAILURE() << "no \"" << text << "\" in time; read so far: " << seen->substr(0, 2000);
    (void)wait(execution.signal(SIGKILL));
  }
  done.get();
  return *seen;
}

Command tool(std::vector<std::string> arguments) {
  Command command;
  command.argv = {kTool};
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  return command;
}

std::string_view tool_image() {
  return {reinterpret_cast<const char*>(asr_kernel_tool_begin),
          static_cast<std::size_t>(asr_kernel_tool_end - asr_kernel_tool_begin)};
}

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

bool eventually(const std::function<bool()>& holds, std::chrono::milliseconds within) {
  auto deadline = Clock::now() + within;
  while (!holds()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

void write_host_file(const fs::path& path, std::string_view text, unsigned mode) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path;
}

// Resident memory would count what a sanitizer keeps aside after free().
std::uint64_t own_allocated_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
  struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

namespace {

// By a look at every process: the kernel's own lists of children are not built into every kernel.
std::vector<int> children_of(int parent) {
  std::vector<int> pids;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::string stat = read_host_file(entry.path() / "stat");
    std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || !std::isdigit(entry.path().filename().native()[0]))
      continue;
    char state = 0;
    int above = 0;
    std::istringstream(stat.substr(name_end + 2)) >> state >> above;
    if (above == parent) pids.push_back(std::stoi(entry.path().filename().native()));
  }
  return pids;
}

}  // namespace

std::vector<int> children_named(std::string_view name) {
  std::vector<int> pids = children_of(::getpid());
  std::erase_if(pids, [&](int pid) {
    return !process_lives(pid) ||
           read_host_file("/proc/" + std::to_string(pid) + "/comm") != std::string(name) + "\n";
  });
  return pids;
}

std::vector<int> sandbox_inits() {
  std::vector<int> pids;
  for (int zygote : children_named("asr-zygote"))
    for (int pid : children_of(zygote))
      if (process_lives(pid)) pids.push_back(pid);
  return pids;
}

std::string noise(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 4 <= size; at += 4) {
    std::uint32_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 4,
                bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return bytes;
}

}  // namespace asr::test
