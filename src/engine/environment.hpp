// Where a sandbox's files come from: turns an Environment into the directories a zygote mounts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/id.hpp"
#include "base/result.hpp"
#include "policy/spec.hpp"
#include "wire/zygote_messages.hpp"

namespace asr {

// The host's own /usr below a small made-up root: accounts, names, and those parts of /etc that
// programs need and everybody may read. Kept in `cache`, made again when the host's files changed.
Result<std::vector<wire::Layer>> host_layers(const std::filesystem::path& cache,
                                             const InstanceId& maker);

// Name of a folder in the cache while it is being filled, and renamed when it is whole. It tells
// its maker, so that what a dead one left can be removed.
std::string half_made(const InstanceId& maker);
bool is_half_made_by(std::string_view name, const InstanceId& maker);

// A root file system in a folder, below a layer in `work` with what every sandbox has.
Result<std::vector<wire::Layer>> folder_layers(const std::filesystem::path& folder,
                                               const std::filesystem::path& work);

// A folder that a sandbox's /workspace begins with, whoever's id has to change for that.
enum class Ids { mapped, own };  // own: as an ordinary user, who has only one
Result<wire::Layer> workspace_layer(const std::filesystem::path& folder, Ids ids);

// Accounts of an image, with those every sandbox has added where they are missing. For tests, too.
std::string with_accounts(std::string passwd);
std::string with_groups(std::string group);

// Where the tarball's files are, or shall be. `key` changes with the tarball.
struct UnpackedTar {
  std::filesystem::path root;
  bool ready = false;
};
Result<UnpackedTar> find_unpacked(const std::filesystem::path& tar,
                                  const std::filesystem::path& cache);

}  // namespace asr
