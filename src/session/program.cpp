#include "session/program.hpp"

#include "store/secret_box.hpp"

namespace asr {

using namespace std::chrono_literals;

namespace {

constexpr std::string_view kExecutable = "program";

const std::vector<ProgramLanguage>& program_languages() {
  static const std::vector<ProgramLanguage> all{
      {"python", "main.py", {}, {}, {"python3", "main.py"}, "python3"},
      {"javascript", "main.js", {}, {}, {"node", "main.js"}, "node"},
      {"bash", "main.sh", {}, {}, {"bash", "main.sh"}, "bash"},
      {"c", "main.c", {"gcc", "-O2", "-std=gnu17", "-pipe"}, {"-lm"}, {"./program"}, "gcc"},
      {"cpp", "main.cpp", {"g++", "-O2", "-std=gnu++20", "-pipe"}, {}, {"./program"}, "g++"},
  };
  return all;
}

std::string place_of(std::string_view name) {
  return std::string(kProgramFolder) + "/" + std::string(name);
}

}  // namespace

const ProgramLanguage* find_program_language(std::string_view name) {
  if (name == "c++") name = "cpp";
  for (const ProgramLanguage& language : program_languages())
    if (language.name == name) return &language;
  return nullptr;
}

std::size_t Program::bytes() const noexcept {
  std::size_t all = code.size();
  for (const InitialFile& file : files) all += file.path.size() + file.content.size();
  return all;
}

std::string place_of_code(const ProgramLanguage& language) { return place_of(language.source); }
std::string place_of_executable() { return place_of(kExecutable); }

Command program_command(const ProgramLanguage& language, const Limits& limits) {
  Command command;
  for (std::string_view word : language.run) command.argv.emplace_back(word);
  command.cwd = kProgramFolder;
  command.wall_time = limits.wall_time;
  command.cpu_time = limits.cpu_time;
  command.output_bytes = limits.output_bytes;
  command.overflow = OutputOverflow::kill;
  return command;
}

Command build_command(const ProgramLanguage& language) {
  Command command;
  for (std::string_view word : language.compiler) command.argv.emplace_back(word);
  command.argv.insert(command.argv.end(),
                      {"-o", std::string(kExecutable), std::string(language.source)});
  for (std::string_view word : language.libraries) command.argv.emplace_back(word);
  command.cwd = kProgramFolder;
  // Warnings without end are no reason to fail.
  command.overflow = OutputOverflow::truncate;
  return command;
}

std::string build_name(const Program& program) {
  std::string all;
  // With its length before it, no part can be taken for another.
  auto add = [&](std::string_view part) {
    all += std::to_string(part.size()) + ":";
    all += part;
  };
  for (const std::string& word : build_command(*program.language).argv) add(word);
  add(program.code);
  for (const InitialFile& file : program.files) {
    add(file.path);
    add(std::to_string(file.mode));
    add(file.content);
  }
  return sha256(all);
}

SandboxSpec judging_spec(const Limits& limits) {
  SandboxSpec spec = spec_of(Preset::standard);
  spec.network = Network::none;
  spec.limits = limits;
  return spec;
}

Limits judged_limits() {
  Limits limits;
  limits.memory_bytes = 256ULL << 20;
  limits.disk_bytes = 128ULL << 20;
  limits.milli_cpus = 1000;
  limits.pids = 64;
  limits.open_files = 1024;
  // Twice as many programs as processors are in work: the clock runs twice as fast for each.
  limits.cpu_time = 10s;
  limits.wall_time = 20s;
  limits.output_bytes = 16ULL << 20;
  return limits;
}

Limits build_limits() {
  Limits limits = judged_limits();
  limits.memory_bytes = 1ULL << 30;
  limits.disk_bytes = 256ULL << 20;
  limits.wall_time = 30s;
  limits.cpu_time = 30s;
  limits.output_bytes = 1ULL << 20;
  return limits;
}

// Room for what the program read, what it wrote and what it should have written.
Limits checker_limits() {
  Limits limits = judged_limits();
  limits.memory_bytes = 512ULL << 20;
  limits.disk_bytes = 256ULL << 20;
  limits.output_bytes = 1ULL << 20;
  return limits;
}

}  // namespace asr
