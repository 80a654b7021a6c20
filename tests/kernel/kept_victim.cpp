// A daemon for tests to kill, with sandboxes that are to outlive it.
//   kept_victim RUNTIME_DIR CACHE_DIR INSTANCE|- WHAT [COUNT [STORAGE_DIR]]
// WHAT: plain    COUNT kept sandboxes
//       all      20 of them: 0 counts on stdout, 1 has a file, 2 is paused, 3 has a terminal, 4
//       runs
//                programs that end by themselves, 5 is being watched; what was read of the counter
//                lies in RUNTIME_DIR/counted
//       loose    one kept, one not, and a pool
//       crowd    one with COUNT programs that all end in three seconds
//       storage  one kept and one not, each with a disk (kept, loose) and the volume `shared`
//       network  one kept and COUNT not, each with a network; "loose_network": COUNT, none kept
//       churn    makes, keeps, uses and ends sandboxes until it is killed
// Says "ready", the pids of its sandboxes, and waits for its end.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "kernel_test.hpp"

namespace asr::test {
namespace {

class Victim {
 public:
  explicit Victim(const EngineOptions& options) : engine_(options), runtime_(options.runtime_dir) {}

  void plain(int count) {
    for (int i = 0; i < count; ++i) {
      auto box = engine_.sandbox();
      engine_.must(box->keep("box-" + std::to_string(i)));
      boxes_.push_back(box);
    }
  }

  void all() {
    plain(20);
    count(*boxes_[0]);
    engine_.must(boxes_[1]->write_file("/workspace/file", "written before"));
    engine_.must(boxes_[1]->write_file("/root/file", "of root", 0600, "root"));
    engine_.must(boxes_[2]->pause());
    terminal(*boxes_[3]);
    keep(*boxes_[4], shell("echo out; echo err >&2; sleep 1; exit 7"), "seven");
    Command limited = shell("sleep 100");
    limited.wall_time = 1500ms;
    keep(*boxes_[4], limited, "limited");
    Command fed = shell("read line; echo got $line; read line && echo more || echo end");
    fed.stdin_mode = StdinMode::pipe;
    keep(*boxes_[4], fed, "fed");
    watch_ = engine_.must(boxes_[5]->watch("/workspace"));
    keep(*boxes_[5], shell("while :; do echo x > /workspace/x; rm /workspace/x; done"), "busy");
  }

  void loose() {
    plain(1);
    boxes_.push_back(engine_.sandbox());
    engine_.must(engine_->warm(spec_of(Preset::strict), {.size = 3, .refill_at_once = 1}));
  }

  void crowd(int count) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.limits.pids = 2000;
    spec.limits.milli_cpus = 0;
    boxes_.push_back(engine_.sandbox(spec));
    engine_.must(boxes_[0]->keep("box-0"));
    for (int i = 0; i < count; ++i)
      keep(*boxes_[0], shell("sleep 3; exit " + std::to_string(i % 100)), std::to_string(i));
  }

  void storage() {
    VolumeOptions volume;
    volume.bytes = 16 << 20;
    engine_.must(engine_->make_volume("shared", volume));
    for (const char* name : {"kept", "loose"}) {
      SandboxSpec spec = spec_of(Preset::standard);
      spec.disk = PersistentDisk{name};
      spec.limits.disk_bytes = 32 << 20;
      spec.volumes.push_back({"shared", "/data", false});
      boxes_.push_back(engine_.sandbox(spec));
      engine_.sh(*boxes_.back(), std::string("echo ") + name + " > /workspace/name; echo " + name +
                                     " > /data/" + name + "; sync");
    }
    engine_.must(boxes_[0]->keep("kept"));
  }

  void network(int loose, bool one_kept) {
    SandboxSpec spec = spec_of(Preset::standard);
    spec.network = Network::full;
    if (one_kept) {
      boxes_.push_back(engine_.sandbox(spec));
      engine_.must(boxes_[0]->write_file(kTool, std::string(tool_image()), 0755));
      engine_.must(boxes_[0]->keep("kept"));
    }
    for (int i = 0; i < loose; ++i) boxes_.push_back(engine_.sandbox(spec));
  }

  [[noreturn]] void churn() {
    ready();
    std::mt19937 random(std::random_device{}());
    std::map<int, std::vector<ExecutionPtr>> programs;
    for (int round = 0;; ++round) {
      if (boxes_.size() < 4) {
        auto box = engine_.sandbox();
        if (random() % 4 != 0) engine_.must(box->keep("churn"));
        boxes_.push_back(box);
      }
      Sandbox& box = *boxes_[random() % boxes_.size()];
      switch (random() % 6) {
        case 0:
          programs.clear();
          engine_.must(box.destroy());
          std::erase_if(boxes_, [&](const SandboxPtr& other) { return other.get() == &box; });
          break;
        case 1:
          if (box.state() == SandboxState::paused)
            engine_.must(box.resume());
          else
            engine_.must(box.pause());
          break;
        default:
          if (box.state() == SandboxState::paused) break;
          engine_.must(box.run(shell("echo x; (sleep 100 &)")));
          auto program = engine_.must(box.start(shell("sleep 100")));
          if (!box.label().empty()) engine_.must(program->keep("sleeper"));
          programs[round % 3].push_back(std::move(program));
      }
    }
  }

  void ready() {
    std::printf("ready");
    for (const SandboxPtr& box : boxes_) std::printf(" %d", box->host_pid());
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  Execution& keep(Sandbox& box, Command command, const std::string& label) {
    programs_.push_back(engine_.must(box.start(std::move(command))));
    engine_.must(programs_.back()->keep(label));
    return *programs_.back();
  }

  void count(Sandbox& box) {
    Execution& counter = keep(box, shell("i=0; while :; do echo $i; i=$((i+1)); done"), "counter");
    std::ofstream seen(runtime_ / "counted", std::ios::binary);
    for (int i = 0; i < 3; ++i) seen << engine_.must(counter.read())->data;
  }

  void terminal(Sandbox& box) {
    Command command = shell("read line; echo said $line; read line; echo then $line");
    command.terminal = TerminalSize{};
    Execution& program = keep(box, command, "terminal");
    engine_.must(program.write_stdin("first\n"));
    std::string seen;
    while (seen.find("said first") == std::string::npos) seen += engine_.must(program.read())->data;
  }

  TestEngine engine_;
  std::filesystem::path runtime_;
  std::vector<SandboxPtr> boxes_;
  std::vector<ExecutionPtr> programs_;
  std::unique_ptr<Watch> watch_;
};

int run(int argc, char** argv) {
  EngineOptions options;
  options.runtime_dir = argv[1];
  options.cache_dir = argv[2];
  if (std::string(argv[3]) != "-") options.instance = argv[3];
  options.zygotes = 1;
  if (std::string(argv[4]).ends_with("network")) options.full_network = FullNetworkOptions{};
  if (argc > 6) options.storage_dir = argv[6];
  if (const char* seconds = std::getenv("ASR_KEEP_FOR"))
    options.keep_for = std::chrono::seconds(std::stoi(seconds));
  Victim victim(options);
  std::string what = argv[4];
  int count = argc > 5 ? std::stoi(argv[5]) : 1;
  if (what == "plain") victim.plain(count);
  if (what == "all") victim.all();
  if (what == "loose") victim.loose();
  if (what == "crowd") victim.crowd(count);
  if (what == "storage") victim.storage();
  if (what.ends_with("network")) victim.network(count, what == "network");
  if (what == "churn") victim.churn();
  victim.ready();
  for (;;) ::pause();
}

}  // namespace
}  // namespace asr::test

int main(int argc, char** argv) { return argc < 5 ? 64 : asr::test::run(argc, argv); }
