#include "cli/sandbox_options.hpp"

#include <cstdlib>

#include "base/units.hpp"

namespace asr {

namespace {

constexpr const char* kSandboxGroup = "Sandbox";
constexpr const char* kLimitsGroup = "Limits (the preset has defaults)";
constexpr const char* kFolderGroup = "Folder";  // see FolderOptions

bool is_for_program(const CLI::Option& option) {
  for (const char* name : {"--timeout", "--cpu-time", "--output-limit"})
    if (option.check_name(name)) return true;
  return option.get_group() != kSandboxGroup && option.get_group() != kLimitsGroup &&
         option.get_group() != kFolderGroup;
}

}  // namespace

void SandboxOptions::declare(CLI::App& command) {
  const char* group = nullptr;
  auto option = [&](const char* names, auto& value, const char* type, const char* what) {
    return command.add_option(names, value, what)->type_name(type)->group(group)->take_last();
  };
  auto flag = [&](const char* names, bool& value, const char* what) {
    command.add_flag(names, value, what)->group(group);
  };
  group = kSandboxGroup;
  option("-p,--preset", preset, "strict|standard", "limits and rights to start from")
      ->capture_default_str();
  option("-E,--environment", environment, "host|folder:PATH|tar:PATH", "root file system")
      ->capture_default_str();
  option("--tier", tier, "strict|browser", "system calls it may make");
  option("--network", network, "none|loopback|full", "what it can connect to");
  flag("--read-only", read_only, "only /tmp, /workspace and $HOME can be written");
  flag("--no-cgroups", no_cgroups, "do without control groups: fewer guarantees");

  group = kLimitsGroup;
  option("-m,--memory", memory, "SIZE", "of all its processes, e.g. 512M");
  option("-c,--cpu", cpu, "CORES", "e.g. 0.5; 0 is no limit");
  option("--pids", pids, "COUNT", "processes and threads");
  option("--disk", disk, "SIZE", "bytes written, at most half of the memory");
  option("--inodes", inodes, "COUNT", "files and folders");
  option("--open-files", open_files, "COUNT", "per process");
  option("-t,--timeout", timeout, "TIME", "e.g. 500ms, 5s or 2m; 0 is no limit");
  option("--cpu-time", cpu_time, "TIME", "of the program and its children");
  option("--output-limit", output_limit, "SIZE", "of stdout and stderr together, e.g. 1M");
  flag("--truncate-output", truncate_output, "at that limit cut, instead of ending the program");

  group = "Program";
  option("-u,--user", user, "USER", "user, root, another name or a number")->capture_default_str();
  option("-w,--cwd", cwd, "PATH", "directory inside [/workspace]");
  // One value each: the word after it may be the command.
  option("-e,--env", env, "NAME[=VALUE]", "set a variable; without a value, the caller's")
      ->take_all()
      ->allow_extra_args(false);
}

Result<SandboxSpec> SandboxOptions::spec() const {
  SandboxSpec result = spec_of(TRY(parse_preset(preset)));
  result.environment = TRY(parse_environment(environment));
  if (!tier.empty()) result.tier = TRY(parse_tier(tier));
  if (network == "none")
    result.network = Network::none;
  else if (network == "loopback")
    result.network = Network::loopback;
  else if (network == "full")
    result.network = Network::full;
  else if (!network.empty())
    return fail(Errc::invalid, "unknown network " + network, "use none, loopback or full");
  if (read_only) result.root = RootMode::read_only;
  Limits& limits = result.limits;
  if (!memory.empty()) {
    limits.memory_bytes = TRY(parse_bytes(memory));
    // A smaller machine has a smaller disk unless somebody says otherwise.
    if (disk.empty()) limits.disk_bytes = std::min(limits.disk_bytes, limits.memory_bytes / 2);
  }
  if (!disk.empty()) limits.disk_bytes = TRY(parse_bytes(disk));
  if (!cpu.empty()) {
    char* end = nullptr;
    double cores = std::strtod(cpu.c_str(), &end);
    if (end == cpu.c_str() || *end != '\0' || !(cores >= 0) || cores > 4096)
      return fail(Errc::invalid, cpu + " is not a number of cores", "write it as 0.5 or 2");
    limits.milli_cpus = static_cast<std::uint32_t>(cores * 1000);
  }
  if (pids) limits.pids = *pids;
  if (inodes) limits.inodes = *inodes;
  if (open_files) limits.open_files = *open_files;
  if (!timeout.empty()) limits.wall_time = TRY(parse_duration(timeout));
  if (!cpu_time.empty()) limits.cpu_time = TRY(parse_duration(cpu_time));
  if (!output_limit.empty()) limits.output_bytes = TRY(parse_bytes(output_limit));
  TRY(check(result));
  return result;
}

Result<void> SandboxOptions::fill(Command& command) const {
  command.user = user;
  command.cwd = cwd;
  command.overflow = truncate_output ? OutputOverflow::truncate : OutputOverflow::kill;
  for (const std::string& entry : env) {
    std::size_t equals = entry.find('=');
    if (equals != std::string::npos) {
      command.env[entry.substr(0, equals)] = entry.substr(equals + 1);
    } else if (const char* value = std::getenv(entry.c_str())) {
      command.env[entry] = value;
    }
  }
  return {};
}

Result<void> SandboxOptions::fill_limits(Command& command) const {
  if (!timeout.empty()) command.wall_time = TRY(parse_duration(timeout));
  if (!cpu_time.empty()) command.cpu_time = TRY(parse_duration(cpu_time));
  if (!output_limit.empty()) command.output_bytes = TRY(parse_bytes(output_limit));
  return {};
}

Result<void> SandboxOptions::check_for_session(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && !is_for_program(*option))
      return fail(Errc::invalid,
                  option->get_name() + " is for a new sandbox, and the session has one already",
                  "leave it out, or say it when the session is made: agent-sandbox session create");
  return {};
}

}  // namespace asr
