#include "cli/sandbox_options.hpp"

#include <cstdlib>

#include "base/units.hpp"

namespace asr {

void SandboxOptions::declare(CLI::App& command) {
  const char* limits = "Limits (defaults come from the preset)";
  const char* sandbox = "Sandbox";
  const char* program = "Program";
  command.add_option("-p,--preset", preset, "strict or standard")->capture_default_str()->group(sandbox);
  command.add_option("-E,--environment", environment, "host, folder:PATH or tar:PATH")->capture_default_str()->group(sandbox);
  command.add_option("--tier", tier, "system calls: strict or browser")->group(sandbox);
  command.add_option("--network", network, "none or loopback")->group(sandbox);
  command.add_flag("--read-only", read_only, "only /tmp, /workspace and the home folder can be written")->group(sandbox);
  command.add_flag("--no-cgroups", no_cgroups, "do without control groups, with fewer guarantees")->group(sandbox);

  command.add_option("-m,--memory", memory, "of all its processes, e.g. 512M")->group(limits);
  command.add_option("-c,--cpu", cpu, "in cores, e.g. 0.5; 0 is no limit")->group(limits);
  command.add_option("--pids", pids, "processes and threads")->group(limits);
  command.add_option("--disk", disk, "bytes written, at most half of the memory")->group(limits);
  command.add_option("--inodes", inodes, "files and folders")->group(limits);
  command.add_option("--open-files", open_files, "per process")->group(limits);
  command.add_option("-t,--timeout", timeout, "of the program, e.g. 5s or 2m; 0 is no limit")->group(limits);
  command.add_option("--cpu-time", cpu_time, "of the program and its children")->group(limits);
  command.add_option("--output-limit", output_limit, "of stdout and stderr together, e.g. 1M")->group(limits);
  command.add_flag("--truncate-output", truncate_output, "at the output limit: cut, instead of ending the program")->group(limits);

  command.add_option("-u,--user", user, "user, root, a name or a number inside")->capture_default_str()->group(program);
  command.add_option("-w,--cwd", cwd, "directory inside; /workspace if not given")->group(program);
  command.add_option("-e,--env", env, "NAME=value, or NAME to pass on the caller's")->group(program);
}

Result<SandboxSpec> SandboxOptions::spec() const {
  SandboxSpec result = spec_of(TRY(parse_preset(preset)));
  result.environment = TRY(parse_environment(environment));
  if (!tier.empty()) result.tier = TRY(parse_tier(tier));
  if (network == "none") result.network = Network::none;
  else if (network == "loopback") result.network = Network::loopback;
  else if (!network.empty()) return fail(Errc::invalid, "unknown network " + network, "use none or loopback");
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
  if (pids != 0) limits.pids = pids;
  if (inodes != 0) limits.inodes = inodes;
  if (open_files != 0) limits.open_files = open_files;
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

}  // namespace asr
