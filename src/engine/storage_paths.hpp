// Names below the storage folder, opened without following a link and without leaving it.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

// The folder itself, made if it is missing. One that others may write to is refused.
Result<UniqueFd> open_storage_root(const std::filesystem::path& path);

// A file that is ours alone: nobody else may have written what the kernel is to mount.
Result<UniqueFd> open_storage_file(int root, const std::string& path);
// Errc::not_found if it is there but a file.
Result<UniqueFd> open_storage_folder(int root, const std::string& path);

struct StoragePlace {
  UniqueFd folder;
  std::string name;
};
// Where something of this name lies or will lie; the folders on the way are made.
Result<StoragePlace> make_place(int root, const std::string& path);

}  // namespace asr
