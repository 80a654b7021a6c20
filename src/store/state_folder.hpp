// The folder in which a server keeps its state: its own, nobody else's, and used by one at a time.
#pragma once

#include <filesystem>
#include <optional>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "store/secret_box.hpp"

namespace asr {

class StateFolder {
 public:
  // Makes the folder if it is missing. Refuses one that other users may enter, and one that another
  // server has locked; the lock ends with this object or its process.
  static Result<StateFolder> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path database() const { return path_ / "state.db"; }

  // An empty file under that name, private whatever the umask is, unless there is one already.
  // SQLite gives its other files the same permissions.
  Result<void> reserve_database() const;

  // Nothing when there is no key yet.
  Result<std::optional<SecretKey>> load_key() const;
  // On the disk when it returns: what is sealed with a lost key is lost.
  Result<SecretKey> make_key() const;

 private:
  StateFolder(std::filesystem::path path, UniqueFd dir, UniqueFd lock)
      : path_(std::move(path)), dir_(std::move(dir)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  UniqueFd dir_;
  UniqueFd lock_;
};

}  // namespace asr
