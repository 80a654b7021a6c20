#include "provider/abilities.hpp"

namespace asr {

const std::vector<AbilityName>& all_abilities() {
  static const std::vector<AbilityName> all{
      {Ability::commands, "commands", "run commands"},
      {Ability::terminals, "terminals", "give commands a terminal"},
      {Ability::signals, "signals", "send signals"},
      {Ability::interpreters, "interpreters", "keep interpreters"},
      {Ability::files, "files", "read and write files"},
      {Ability::file_rights, "file_rights", "open files with the rights of their users"},
      {Ability::live_files, "live_files", "read a file while it changes"},
      {Ability::byte_names, "byte_names", "use names that are not UTF-8"},
      {Ability::archives, "archives", "pack and unpack archives"},
      {Ability::archive_checks, "archive_checks", "tell what of an archive was left out"},
      {Ability::watches, "watches", "watch folders"},
      {Ability::ports, "ports", "connect to ports inside"},
      {Ability::pause, "pause", "pause sessions"},
      {Ability::usage, "usage", "tell what a session uses"},
      {Ability::cpu_usage, "cpu_usage", "tell what time and memory a command used"},
      {Ability::limits, "limits", "hold the limits a session asks for"},
      {Ability::effects, "effects", "tell effects"},
      {Ability::changes, "changes", "tell what a session changed"},
      {Ability::checkpoints, "checkpoints", "save sessions"},
      {Ability::fork, "fork", "fork sessions"},
      {Ability::survival, "survival", "keep sessions when the server is killed"},
      {Ability::disks, "disks", "hold persistent sessions"},
      {Ability::volumes, "volumes", "attach volumes"},
      {Ability::environments, "environments", "use folders and archives of this server"},
      {Ability::images, "images", "use templates"},
      {Ability::browser, "browser", "give the tier that browsers need"},
      {Ability::isolation, "isolation", "keep a session from the network"},
      {Ability::allow_list, "allow_list", "let a session reach named hosts only"},
      {Ability::internet, "internet", "give a session the whole internet"},
  };
  return all;
}

std::string_view to_string(Ability ability) noexcept {
  for (const AbilityName& each : all_abilities())
    if (each.ability == ability) return each.name;
  return "?";
}

Result<void> Abilities::check(Ability ability, std::string_view provider) const {
  auto missing = missing_.find(ability);
  if (missing == missing_.end()) return {};
  std::string what;
  for (const AbilityName& each : all_abilities())
    if (each.ability == ability) what = each.what;
  const auto& [why, code] = missing->second;
  std::string refused =
      code == Errc::denied
          ? "not allowed by this server: " + std::string(provider) + " may not "
          : "not supported by this provider: " + std::string(provider) + " cannot ";
  return fail(code, refused + what, why);
}

}  // namespace asr
