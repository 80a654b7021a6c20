// What a process in a sandbox is and sees, written down in golden/: rights, limits, descriptors,
// mounts, devices. Numbers that differ from machine to machine are masked; anything that widens
// fails.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "golden.hpp"
#include "harness.hpp"

namespace asr::escape {

namespace {

using Sections = std::map<std::string, std::vector<std::string>>;

Sections sections_of(const std::string& text) {
  Sections sections;
  std::string name;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("== "))
      name = line.substr(3);
    else
      sections[name].push_back(line);
  }
  return sections;
}

// Field names and values with single spaces, so that column widths do not matter.
std::string squeezed(const std::string& line) {
  std::string text = std::regex_replace(line, std::regex("[ \t]+"), " ");
  return text.ends_with(' ') ? text.substr(0, text.size() - 1) : text;
}

// "rw,nosuid,nodev - overlay /usr" for a line of mountinfo: where, how and what, without numbers,
// sources and sizes.
std::string mount_line(const std::string& line) {
  static const std::regex parts(R"(^\S+ \S+ \S+ \S+ (\S+) (\S+)(( \S+:\S+)*) - (\S+) \S+ (\S+)$)");
  std::smatch match;
  if (!std::regex_match(line, match, parts)) return line;
  std::string super = match[6].str().substr(0, match[6].str().find(','));  // Only ro or rw.
  std::string how =
      std::regex_replace(match[2].str(), std::regex(",(relatime|noatime|lazytime)"), "");
  std::string where = match[1].str(), type = match[5].str();
  static const std::regex device("^/dev/(null|zero|full|random|urandom|tty)$");
  if (std::regex_match(where, device)) return where + " a device of the host";  // E17 looks at how.
  if (where == "/usr" &&
      type != "overlay") {  // The host's own file system, id-mapped if it can be.
    how = std::regex_replace(how, std::regex(",idmapped"), "");
    type = "the host's", super = "file system";
  }
  return where + " " + how + match[3].str() + " - " + type + " " + super;
}

}  // namespace

class Posture : public Escape {
 protected:
  Sections posture(const SandboxPtr& sandbox, const std::string& user, bool terminal) {
    Command command;
    if (terminal) command.terminal = TerminalSize{};
    RunResult result = run(sandbox, user, {kProbe, "POSTURE"}, command);
    EXPECT_NE(result.out.find("== end"), std::string::npos) << result.out << result.err;
    return sections_of(result.out);
  }

  static std::vector<std::string> process_lines(const Sections& all) {
    std::vector<std::string> lines;
    for (const char* name :
         {"status", "uid_map", "gid_map", "oom_score_adj", "cwd", "fd", "environ", "limits"}) {
      lines.push_back(std::string("== ") + name);
      auto it = all.find(name);
      if (it == all.end()) continue;
      for (std::string line : it->second) {
        line = squeezed(line);
        if (std::string_view(name).ends_with(
                "_map"))  // The host's numbers differ from sandbox to sandbox.
          line = std::regex_replace(line, std::regex(R"(^ ?(\d+) \d+ (\d+)$)"), "$1 HOST $2");
        // The machine's own limits, where they are below ours, and those we leave alone.
        if (std::regex_search(
                line,
                std::regex("^Max (stack size|processes|pending signals|realtime timeout|address "
                           "space|resident set|data size|cpu time|file locks)")))
          continue;
        lines.push_back(line);
      }
    }
    return lines;
  }
};

TEST_F(Posture, ProcessesOfBothUsers) {
  SandboxPtr sandbox = make();
  for (const char* user : {"root", "user"})
    for (bool terminal : {false, true})
      expect_golden(std::string("process-") + user + (terminal ? "-terminal" : "") + ".txt",
                    process_lines(posture(sandbox, user, terminal)),
                    std::string("A program run as ") + user +
                        (terminal ? " on a terminal." : " without a terminal."));
}

TEST_F(Posture, Mounts) {
  for (auto [preset, name] : {std::pair{Preset::standard, "mounts-standard.txt"},
                              {Preset::strict, "mounts-strict.txt"}}) {
    Sections all = posture(make(spec_of(preset)), "root", false);
    std::set<std::string> fixed;
    std::vector<std::string> masks;
    for (const std::string& line : all["mountinfo"]) {
      std::string mount = mount_line(line);
      if (mount.starts_with("/proc/"))
        masks.push_back(
            std::regex_replace(mount, std::regex("^/proc/(?!sys )\\S+"), "/proc/MASKED"));
      else
        fixed.insert(mount);
    }
    expect_golden(name, {fixed.begin(), fixed.end()},
                  "Mounts of a sandbox, but for what covers entries of /proc.");
    std::sort(masks.begin(), masks.end());
    masks.erase(std::unique(masks.begin(), masks.end()), masks.end());
    expect_golden("masks.txt", masks,
                  "How entries of /proc are covered; which ones depends on the kernel.");
  }
}

TEST_F(Posture, Devices) {
  Sections all = posture(make(), "root", false);
  expect_golden("dev.txt", all["dev"], "Everything in /dev: type, mode, owner, name.");
}

// Which entries a kernel has differs; none may be readable that was not decided to be.
TEST_F(Posture, ReadableProc) {
  SandboxPtr sandbox = make();
  for (const char* user : {"root", "user"}) {
    std::vector<std::string> names;
    for (const Attempt& entry : probe(sandbox, user, "PROC-readable")) names.push_back(entry.what);
    ASSERT_FALSE(names.empty());
    expect_within_golden("proc.txt", names,
                         "The only entries of /proc beside processes that may be read.");
  }
}

// Pid 1 as the host sees it: no rights over the host, nothing open that is not needed.
TEST_F(Posture, Pid1) {
  SandboxPtr sandbox = make();
  std::string proc = "/proc/" + std::to_string(sandbox->host_pid());
  std::vector<std::string> lines;
  static const std::regex wanted(
      "^(Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):");
  for (const std::string& line : lines_of(read_host_file(proc + "/status")))
    if (std::regex_search(line, wanted)) lines.push_back(squeezed(line));
  std::multiset<std::string> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd")) {
    std::string link = std::filesystem::read_symlink(entry.path()).string();
    descriptors.insert(std::regex_replace(link, std::regex(":\\[?\\d*\\]?$"), ""));
  }
  lines.emplace_back("== descriptors");
  lines.insert(lines.end(), descriptors.begin(), descriptors.end());
  expect_golden("pid1.txt", lines, "Pid 1 of a sandbox, as the host sees it.");
  std::string environ = read_host_file(proc + "/environ");
  EXPECT_EQ(environ.find(secret_), std::string::npos) << "pid 1 has the daemon's environment";
  std::string uid_map = read_host_file(proc + "/uid_map");
  EXPECT_FALSE(std::regex_search(uid_map, std::regex("^\\s*\\d+\\s+0\\s")))
      << "root of the host is mapped: " << uid_map;
}

// Two sandboxes share no id: not of their users, not of their owners.
TEST_F(Posture, IdsOfTheirOwn) {
  SandboxPtr one = make(), other = make();
  auto map_of = [](const SandboxPtr& sandbox) {
    return squeezed(read_host_file("/proc/" + std::to_string(sandbox->host_pid()) + "/uid_map"));
  };
  EXPECT_FALSE(map_of(one).empty());
  EXPECT_NE(map_of(one), map_of(other));
}

}  // namespace asr::escape
