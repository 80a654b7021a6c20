// What a provider's sandboxes can do, as a value: who asks for something can be told beforehand.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace asr {

enum class Ability {
  commands,
  terminals,
  signals,
  interpreters,
  files,
  archives,
  watches,
  ports,        // connections to servers inside: previews
  pause,        // with everything that runs
  usage,        // of the sandbox: memory, disk
  cpu_usage,    // of the sandbox, and what each command used
  limits,       // memory, processors, disk, processes: those a session asks for
  effects,      // of commands and cells
  changes,      // diff, apply, merge
  checkpoints,  // checkpoint, rollback, undo, snapshot
  fork,         // others that go on from where one is
  survival,     // sessions outlive a server that is killed
  disks,        // persistent sessions
  volumes,
  environments,    // folders and archives of this server
  images,          // names that the provider itself knows: "template:NAME"
  browser,         // the tier that Chromium needs
  isolation,       // a network that leads nowhere
  allow_list,      // a network of named hosts, through this server
  internet,        // a network that leads everywhere
  file_rights,     // Files are opened with the rights of the user who is named.
  live_files,      // What is read is the file itself, not a copy of it.
  byte_names,      // of files, that are not UTF-8
  archive_checks,  // What of an archive was left out is told.
};

struct AbilityName {
  Ability ability;
  std::string_view name;  // as the API has it
  std::string_view what;  // "it cannot …" ends so
};
const std::vector<AbilityName>& all_abilities();
std::string_view to_string(Ability ability) noexcept;

// Everything, but for what is named with a reason.
class Abilities {
 public:
  Abilities& lacks(Ability ability, std::string why) {
    missing_[ability] = {std::move(why), Errc::unsupported};
    return *this;
  }
  // It could, and whoever runs this server does not want it.
  Abilities& may_not(Ability ability, std::string why) {
    missing_[ability] = {std::move(why), Errc::denied};
    return *this;
  }
  bool can(Ability ability) const { return !missing_.contains(ability); }
  // Empty if it can.
  std::string why_not(Ability ability) const {
    auto found = missing_.find(ability);
    return found == missing_.end() ? "" : found->second.why;
  }
  // Errc::unsupported or Errc::denied, which says who cannot do what, and why.
  Result<void> check(Ability ability, std::string_view provider) const;

 private:
  struct Missing {
    std::string why;
    Errc code = Errc::unsupported;
  };
  std::map<Ability, Missing> missing_;
};

}  // namespace asr
